"""Real servers of objects for tests, as tests/stores/install has them: MinIO, an emulator of Google's store, Azurite.

Each is started on a free port of loopback with a folder of its own, and takes objects by its own protocol's plain
requests. `EVENKEEL_STORES` is the folder of the servers (default: build/stores).
"""

import base64
import datetime
import hashlib
import hmac
import http.client
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import object_server  # noqa: E402

BUCKET = "photos"
SECRET = object_server.SECRET


def folder():
    return pathlib.Path(os.environ.get("EVENKEEL_STORES", ROOT / "build" / "stores"))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Unavailable(Exception):
    """The server is not installed; the reason."""


class Server:
    """A process that answers at `host` (HOST:PORT) within a `with` block, and has the bucket BUCKET."""

    name, program, scheme = "", "", ""

    def __init__(self, data):
        self.path = folder() / self.program
        if not self.path.exists():
            missing = folder() / "missing" / self.name
            raise Unavailable(missing.read_text().strip() if missing.exists() else
                              f"{self.program} is not in {folder()}; tests/stores/install puts it there")
        self.data = pathlib.Path(data)
        self.host = f"127.0.0.1:{free_port()}"

    def __enter__(self):
        self.log = open(self.data / "log", "wb")
        self.process = subprocess.Popen([str(word) for word in self.command()], stdout=self.log, stderr=self.log,
                                        env={**os.environ, **self.settings()}, cwd=self.data)
        end = time.monotonic() + 120
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise AssertionError(f"{self.name} does not answer:\n{(self.data / 'log').read_text()[-2000:]}")
            time.sleep(0.1)
        self.make_bucket()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(30)
        self.log.close()

    def answers(self):
        try:
            self.request("GET", "/")
            return True
        except OSError:
            return False

    def request(self, method, target, body=b"", headers=None):
        """(status, headers, body)"""
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            connection.request(method, target, body, headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        finally:
            connection.close()

    def must(self, *request):
        status, _, body = self.request(*request)
        assert status in (200, 201, 204), (self.name, request[:2], status, body[:500])

    def address(self, key):
        return f"{self.scheme}://{BUCKET}/{key}"

    def put_folder(self, path, prefix, pattern="*.tar"):
        for file in sorted(path.glob(pattern)):
            if file.is_file():
                self.put(f"{prefix}/{file.relative_to(path)}", file.read_bytes())


class MinIO(Server):
    name, program, scheme = "minio", "bin/minio", "s3"

    def command(self):
        return [self.path, "server", "--quiet", "--address", self.host, self.data / "objects"]

    def settings(self):
        return {"MINIO_ROOT_USER": object_server.ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_UPDATE": "off",
                "MINIO_BROWSER": "off"}

    def environment(self, secret=SECRET, host=None):
        return object_server.environment(AWS_ENDPOINT_URL=f"http://{host or self.host}",
                                         **({} if secret == SECRET else {"AWS_SECRET_ACCESS_KEY": secret}))

    def answers(self):
        try:
            return self.request("GET", "/minio/health/cluster")[0] == 200
        except OSError:
            return False

    def signed(self, method, target, body):
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": self.host, "x-amz-date": now, "x-amz-content-sha256": hashlib.sha256(body).hexdigest()}
        said = (f"AWS4-HMAC-SHA256 Credential={object_server.ACCESS_KEY}/{now[:8]}/us-east-1/s3/aws4_request, "
                f"SignedHeaders={';'.join(sorted(headers))}, Signature=")
        signature = object_server.signature_of(SECRET, method, target, headers, said)[1]
        return self.must(method, target, body, {**headers, "authorization": said + signature})

    def make_bucket(self):
        self.signed("PUT", f"/{BUCKET}", b"")

    def put(self, key, data):
        self.signed("PUT", f"/{BUCKET}/{key}", data)

    def allow_everyone(self):
        """Also readers without credentials."""
        self.signed("PUT", f"/{BUCKET}?policy=", (
            '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": ["*"]}, '
            '"Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::%s/*"]}]}' % BUCKET).encode())


class Google(Server):
    """Checks no credentials, so a reader is anonymous."""

    name, program, scheme = "fake-gcs-server", "bin/fake-gcs-server", "gs"

    def command(self):
        host, _, port = self.host.partition(":")
        return [self.path, "-backend", "memory", "-scheme", "http", "-host", host, "-port", port,
                "-public-host", self.host, "-log-level", "error"]

    def settings(self):
        return {}

    def environment(self):
        return {"GOOGLE_BASE_URL": f"http://{self.host}", "GOOGLE_SKIP_SIGNATURE": "true"}

    def make_bucket(self):
        self.must("POST", "/storage/v1/b", b'{"name": "%s"}' % BUCKET.encode(), {"Content-Type": "application/json"})

    def put(self, key, data):
        self.must("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={urllib.parse.quote(key, '')}", data,
                  {"Content-Type": "application/octet-stream"})


class Azurite(Server):
    name, program, scheme = "azurite", "node_modules/.bin/azurite-blob", "az"
    ACCOUNT = "evenkeel"
    KEY = base64.b64encode(SECRET.encode()).decode()

    def command(self):
        host, _, port = self.host.partition(":")
        return [self.path, "--silent", "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence",
                "--blobHost", host, "--blobPort", port]

    def settings(self):
        return {"AZURITE_ACCOUNTS": f"{self.ACCOUNT}:{self.KEY}"}

    def environment(self, secret=SECRET):
        return {"AZURE_STORAGE_ACCOUNT_NAME": self.ACCOUNT,
                "AZURE_STORAGE_ENDPOINT": f"http://{self.host}/{self.ACCOUNT}",
                "AZURE_STORAGE_ACCOUNT_KEY": base64.b64encode(secret.encode()).decode()}

    def signed(self, method, path, query, body, more):
        """A request with a shared key: signed are the headers by name, then account, path and query."""
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = {"x-ms-date": date, "x-ms-version": "2021-12-02", **more}
        lines = [method, "", "", str(len(body) or ""), "", "", "", "", "", "", "", "",
                 *(f"{name}:{headers[name]}" for name in sorted(headers)), f"/{self.ACCOUNT}/{self.ACCOUNT}{path}",
                 *(f"{name}:{value}" for name, value in sorted(query.items()))]
        signature = base64.b64encode(hmac.digest(SECRET.encode(), "\n".join(lines).encode(), "sha256")).decode()
        target = f"/{self.ACCOUNT}{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        self.must(method, target, body, {**headers, "Content-Length": str(len(body)),
                                         "Authorization": f"SharedKey {self.ACCOUNT}:{signature}"})

    def make_bucket(self):
        self.signed("PUT", f"/{BUCKET}", {"restype": "container"}, b"", {})

    def put(self, key, data):
        self.signed("PUT", f"/{BUCKET}/{key}", {}, data, {"x-ms-blob-type": "BlockBlob"})


SERVERS = (MinIO, Google, Azurite)
