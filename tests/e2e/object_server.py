"""A server of objects for tests: the S3 calls that reading and writing of small objects need, and plain files with
ranges, with faults on request.

A folder holds the objects. `s3://NAME/key` is asked for as /NAME/key, with signatures checked by the secret; any other
reader gets the same objects as http://.../NAME/key if the server is made with `secret=None`.
"""

import collections
import hashlib
import hmac
import http.server
import pathlib
import socket
import ssl
import struct
import threading
import time
import urllib.parse
import xml.sax.saxutils

ACCESS_KEY = "AKIDEXAMPLE"
SECRET = "a-secret-that-no-message-has"
KEYS_PER_PAGE = 2  # of a list, so that short lists have pages

Request = collections.namedtuple("Request", "method path range status")


def environment(**more):
    """Of a client of this server; without it, credentials of the machine would count."""
    return {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "eu-test-1", **more}


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def signature_of(secret, method, target, headers, authorization):
    """The signature (AWS Signature Version 4) that the request should have."""
    fields = dict(part.strip().split("=", 1) for part in authorization.split(" ", 1)[1].split(","))
    path, _, query = target.partition("?")
    pairs = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
    canonical_query = "&".join(f"{urllib.parse.quote(k, '-_.~')}={urllib.parse.quote(v, '-_.~')}" for k, v in pairs)
    names = fields["SignedHeaders"].split(";")
    assert "host" in names and "x-amz-date" in names and "x-amz-content-sha256" in names, names
    canonical = "\n".join([method, path, canonical_query, *(f"{n}:{' '.join(headers[n].split())}" for n in names), "",
                           ";".join(names), headers["x-amz-content-sha256"]])
    key, date, region, service, ending = fields["Credential"].split("/")
    assert (key, service, ending) == (ACCESS_KEY, "s3", "aws4_request"), fields["Credential"]
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], "/".join([date, region, service, ending]),
                      sha256(canonical.encode())])
    signing = ("AWS4" + secret).encode()
    for part in (date, region, service, ending):
        signing = hmac.digest(signing, part.encode(), "sha256")
    return fields["Signature"], hmac.digest(signing, text.encode(), "sha256").hex()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, status, headers=(), body=b""):
        self.note(status)
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        if "Content-Length" not in dict(headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def note(self, status):
        with self.server.lock:
            self.server.requests.append(Request(self.command, self.path, self.headers.get("Range"), status))

    def refuse(self, status, code):
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><StringToSign>{SECRET}</StringToSign></Error>"
        self.answer(status, {"Content-Type": "application/xml"}, text.encode())

    def is_signed(self):
        if self.server.secret is None:
            return True
        authorization = self.headers.get("Authorization", "")
        if not authorization.startswith("AWS4-HMAC-SHA256 "):
            self.refuse(403, "AccessDenied")
            return False
        given, expected = signature_of(self.server.secret, self.command, self.path, self.headers, authorization)
        if given != expected:
            self.refuse(403, "SignatureDoesNotMatch")
        return given == expected

    def break_connection(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        with self.server.lock:
            self.server.now += 1
            self.server.most_at_once = max(self.server.most_at_once, self.server.now)
        try:
            self.give_any()
        finally:
            with self.server.lock:
                self.server.now -= 1

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.is_signed():
            return None
        if self.server.read_only:
            return self.refuse(403, "AccessDenied")
        path = self.server.folder / urllib.parse.unquote(self.path).lstrip("/")
        if not (self.server.folder / path.relative_to(self.server.folder).parts[0]).is_dir():
            return self.refuse(404, "NoSuchBucket")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        return self.answer(200, {"ETag": self.etag(body)})

    def give_any(self):
        time.sleep(self.server.latency)
        path, _, query = self.path.partition("?")
        if path == "/login":
            return self.answer(200, {"Content-Type": "text/html; charset=utf-8"}, b"<html>Who are you?</html>" * 9)
        if self.server.redirect:
            return self.answer(302, {"Location": self.server.redirect})
        if not self.is_signed():
            return None
        fault = self.server.next_fault(self.command)
        if fault == "slow down":
            return self.refuse(503, "SlowDown")
        if fault == "internal error":
            return self.refuse(500, "InternalError")
        if fault == "forbidden":
            return self.refuse(403, "AccessDenied")
        if fault == "expired":
            return self.refuse(400, "ExpiredToken")
        if fault == "reset":
            self.note(0)
            return self.break_connection()
        if fault == "slow":
            self.server.stopped.wait(5)
        values = dict(urllib.parse.parse_qsl(query))
        if "list-type" in values:
            return self.list_objects(path.strip("/"), values)
        file = self.server.folder / urllib.parse.unquote(path).lstrip("/")
        if not file.is_file():
            bucket = self.server.folder / urllib.parse.unquote(path).lstrip("/").partition("/")[0]
            return self.refuse(404, "NoSuchKey" if bucket.is_dir() else "NoSuchBucket")
        return self.give(file.read_bytes(), fault)

    def list_objects(self, bucket, values):
        prefix, begin = values.get("prefix", ""), values.get("continuation-token", "")
        root = self.server.folder / bucket
        keys = sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.is_file())
        keys = [key for key in keys if key.startswith(prefix) and "/" not in key[len(prefix):] and key > begin]
        page, more = keys[:KEYS_PER_PAGE], len(keys) > KEYS_PER_PAGE
        items = "".join(f"<Contents><Key>{xml.sax.saxutils.escape(key)}</Key><LastModified>2026-01-01T00:00:00Z</LastModified>"
                        f"<ETag>{self.listed_etag((root / key).read_bytes())}</ETag><Size>{(root / key).stat().st_size}</Size></Contents>"
                        for key in page)
        token = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if more else ""
        self.answer(200, {"Content-Type": "application/xml"},
                    f"<?xml version='1.0'?><ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>"
                    f"{token}{items}</ListBucketResult>".encode())

    def etag(self, data):
        return f'"{hashlib.md5(data + self.server.salt).hexdigest()}"'

    def listed_etag(self, data):
        """Azure's listings have no quotes."""
        return self.etag(data) if self.server.quotes_etags else self.etag(data).strip('"')

    def give(self, data, fault):
        if self.headers.get("If-Match") not in (None, self.etag(data)) and self.server.has_conditions:
            return self.refuse(412, "PreconditionFailed")
        headers = {"Accept-Ranges": "bytes", "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "ETag": self.etag(data),
                   "Content-Type": "application/octet-stream"}
        wanted = self.headers.get("Range")
        if wanted is None or not self.server.has_ranges:
            return self.answer(200, {**headers, "Content-Length": str(len(data))}, data)
        first, last = wanted.removeprefix("bytes=").split("-")
        first, last = int(first), min(int(last), len(data) - 1)
        if first >= len(data):
            return self.refuse(416, "InvalidRange")
        body = data[first:last + 1]
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        if fault == "wrong range":
            headers["Content-Range"] = f"bytes {first + 1}-{last + 1}/{len(data) + 2}"
        if fault in ("stall in body", "reset in body"):
            self.answer(206, {**headers, "Content-Length": str(len(body))}, body[:len(body) // 2])
            self.wfile.flush()
            if fault == "stall in body":
                self.server.stopped.wait(5)
            return self.break_connection()
        if fault == "short body":
            return self.answer(206, headers, body[:len(body) // 2])
        self.answer(206, {**headers, "Content-Length": str(len(body))}, body)
        self.server.after_range()
        return None


class ObjectServer(http.server.ThreadingHTTPServer):
    """Serves until the `with` block ends. `faults`: one for each of the next GETs; None: a good answer."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder, secret=SECRET, certificate=None, handler=Handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.folder, self.secret = pathlib.Path(folder), secret
        self.scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.certificate, certificate.key)
            self.socket = context.wrap_socket(self.socket, server_side=True)
            self.scheme = "https"
        self.lock = threading.Lock()
        self.requests, self.faults = [], []
        self.now, self.most_at_once = 0, 0
        self.latency, self.salt, self.redirect, self.read_only = 0, b"", None, False
        self.has_ranges, self.has_conditions, self.quotes_etags = True, True, True
        self.change_after = None  # ranges, then every object has another ETag
        self.stopped = threading.Event()

    @property
    def url(self):
        return f"{self.scheme}://localhost:{self.server_port}"

    def next_fault(self, method):
        with self.lock:
            return self.faults.pop(0) if self.faults and method == "GET" else None

    def after_range(self):
        with self.lock:
            if self.change_after is not None:
                self.change_after -= 1
                if self.change_after <= 0:
                    self.salt = b"changed"

    def handle_error(self, request, address):
        pass  # connections that the reader gave up

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.shutdown()
        self.server_close()
