"""Stores by a profile of ~/.aws: keys, programs, roles and SSO, the order of sources, and clear errors."""

import datetime
import hashlib
import http.server
import json
import os
import pathlib
import threading
import time
import xml.sax.saxutils

import pytest

import harness
import media
import test_formats
from object_server import ACCESS_KEY, SECRET, ObjectServer

REGION = "eu-test-1"
KEYS = f"aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET}\n"
STEPS = 2


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A server with a bucket, and the digest of its index."""
    folder = tmp_path_factory.mktemp("objects")
    (folder / "photos").mkdir()
    media.write_mixed_shards(folder / "photos", "data", 1, 8, seed=5)
    job = test_formats.write_job(tmp_path_factory.mktemp("local"), f'shards: ["{folder}/photos/data-000.tar"]')
    digest = json.loads(harness.run("index", "--job", job, "--json").stdout)["digest"]
    with ObjectServer(folder) as server:
        yield server, digest


@pytest.fixture(autouse=True)
def no_other_credentials(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)


class Home:
    """A folder of a user, with a job that reads the bucket."""

    def __init__(self, folder, server, extra=""):
        self.folder, self.server = folder, server
        self.job = test_formats.write_job(folder, 'shards: ["s3://photos/data-000.tar"]', extra)
        (folder / ".aws").mkdir()
        self.env = {"HOME": str(folder)}

    def config(self, text):
        """`text`: with a place for what leads to the server."""
        place = f"region = {REGION}\nendpoint_url = {self.server.url}\n"
        (self.folder / ".aws" / "config").write_text(text.replace("PLACE\n", place))

    def credentials(self, text):
        (self.folder / ".aws" / "credentials").write_text(text)

    def program(self, text):
        path = self.folder / "credentials of a program.sh"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return f"'{path}'"

    def index(self, check=True, **env):
        return harness.run("index", "--job", self.job, "--json", check=check, env={**self.env, **env})

    def digest(self, **env):
        return json.loads(self.index(**env).stdout)["digest"]

    def error(self, **env):
        done = self.index(check=False, **env)
        assert done.returncode != 0
        assert SECRET not in done.stdout + done.stderr
        return done.stderr


@pytest.fixture
def home(tmp_path, store):
    return Home(tmp_path, store[0])


def answer_of(expiry=None):
    answer = {"Version": 1, "AccessKeyId": ACCESS_KEY, "SecretAccessKey": SECRET, "SessionToken": "a-token"}
    return json.dumps({**answer, **({"Expiration": expiry} if expiry else {})})


class Portal(http.server.ThreadingHTTPServer):
    """AWS's portal of SSO and its service of roles, as far as profiles need them."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), PortalHandler)
        self.seen, self.status = [], 200

    @property
    def url(self):
        return f"http://localhost:{self.server_port}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class PortalHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, kind, body):
        self.send_response(self.server.status)
        self.send_header("Content-Type", kind)
        if self.server.status != 200:
            self.send_header("x-amzn-ErrorType", "UnauthorizedException")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_GET(self):
        self.server.seen.append((self.path, self.headers.get("x-amz-sso_bearer_token")))
        if self.path == "/pod":
            pod = {"AccessKeyId": ACCESS_KEY, "SecretAccessKey": SECRET, "Token": "a-token", "Expiration": stamp(3600)}
            return self.answer("application/json", json.dumps(pod))
        if self.server.status != 200:
            return self.answer("application/json", json.dumps({"message": "Session token not found or invalid"}))
        keys = {"accessKeyId": ACCESS_KEY, "secretAccessKey": SECRET, "sessionToken": "a-token",
                "expiration": int(1000 * (time.time() + 3600))}
        return self.answer("application/json", json.dumps({"roleCredentials": keys}))

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.seen.append((body, self.headers["Authorization"].split("/")[0]))
        keys = {"AccessKeyId": ACCESS_KEY, "SecretAccessKey": SECRET, "SessionToken": "a-token", "Expiration": stamp(3600)}
        inner = "".join(f"<{name}>{xml.sax.saxutils.escape(value)}</{name}>" for name, value in keys.items())
        user = "<AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/reader/x</Arn><AssumedRoleId>A:x</AssumedRoleId></AssumedRoleUser>"
        self.answer("text/xml", '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>'
                    f"{user}<Credentials>{inner}</Credentials></AssumeRoleResult></AssumeRoleResponse>")


def stamp(seconds):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_sso(home, expires=3600):
    home.config("[profile team]\nPLACE\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = reader\n"
                "[sso-session corp]\nsso_region = eu-test-1\nsso_start_url = https://corp.example/start\n")
    cache = home.folder / ".aws" / "sso" / "cache"
    cache.mkdir(parents=True)
    token = {"accessToken": "token-of-login", "expiresAt": stamp(expires), "region": REGION,
             "startUrl": "https://corp.example/start"}
    (cache / f"{hashlib.sha1(b'corp').hexdigest()}.json").write_text(json.dumps(token))


def test_the_default_profile_needs_no_variable(home, store):
    home.config("[default]\nPLACE\n")
    home.credentials(f"[default]\n{KEYS}")
    assert home.digest() == store[1]
    with harness.Fleet(home.job, 1, env=home.env) as fleet:
        assert len(harness.fetch(fleet.endpoints, home.job, "--ranks", "0-1", "--steps", STEPS, env=home.env).steps) > 0


def test_files_and_profile_are_those_of_the_variables(home, store):
    home.credentials("[default]\naws_access_key_id = WRONG\naws_secret_access_key = WRONG\n")
    (home.folder / "c").write_text(f"[profile other]\nregion = {REGION}\nservices = local\n"
                                   f"[services local]\ns3 =\n  endpoint_url = {store[0].url}\n")
    (home.folder / "k").write_text(f"[other]\n{KEYS}")
    files = {"AWS_CONFIG_FILE": str(home.folder / "c"), "AWS_SHARED_CREDENTIALS_FILE": "~/k"}
    assert home.digest(**files, AWS_PROFILE="other") == store[1]


def test_keys_of_the_environment_win_over_a_profile(home, store):
    env = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION,
           "AWS_ENDPOINT_URL": store[0].url, "AWS_PROFILE": "missing"}
    home.config("no file of profiles")
    assert home.digest(**env) == store[1]


def test_a_pod_wins_over_the_default_profile_alone(home, store):
    (home.folder / "token").write_text("of-the-pod")
    home.config("[default]\nPLACE\n[profile named]\nPLACE\n")
    home.credentials(f"[default]\naws_access_key_id = WRONG\naws_secret_access_key = WRONG\n[named]\n{KEYS}")
    with Portal() as portal:
        pod = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{portal.url}/pod", "AWS_REGION": REGION,
               "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(home.folder / "token"), "AWS_ENDPOINT_URL": store[0].url}
        assert home.digest(**pod) == store[1] and len(portal.seen) == 1
        assert home.digest(**pod, AWS_PROFILE="named") == store[1] and len(portal.seen) == 1


def test_the_environment_decides_region_and_endpoint(home, store):
    home.config("[default]\nregion = wrong-1\nendpoint_url = http://localhost:1\n")
    home.credentials(f"[default]\n{KEYS}")
    assert home.digest(AWS_REGION=REGION, AWS_ENDPOINT_URL=store[0].url) == store[1]


def test_a_program_gives_credentials(home, store):
    program = home.program(f"echo '{answer_of()}'; echo \"$1\" > '{home.folder}/argument'")
    home.config(f"[profile program]\nPLACE\ncredential_process = {program} \"it's one\" # not two\n")
    assert home.digest(AWS_PROFILE="program") == store[1]
    assert (home.folder / "argument").read_text() == "it's one\n"


def test_credentials_are_requested_again_before_they_end(home, store):
    count = home.folder / "count"
    program = home.program(f"echo x >> '{count}'; end=$(date -u -d '+4 seconds' +%Y-%m-%dT%H:%M:%SZ)\n"
                           f"echo '{answer_of('END')}' | sed \"s/END/$end/\"")
    home.config(f"[default]\nPLACE\ncredential_process = {program}\n")
    assert home.digest() == store[1]
    with harness.Fleet(home.job, 1, "--fetch-ahead", 0, env=home.env) as fleet:
        count.write_text("")
        end = time.monotonic() + 20
        while count.read_text().count("x") < 2 and time.monotonic() < end:
            harness.fetch(fleet.endpoints, home.job, "--ranks", "0-1", "--steps", STEPS, env={"AWS_PROFILE": ""} | home.env)
            time.sleep(0.5)
    assert count.read_text().count("x") >= 2


def test_a_role_is_assumed_with_the_keys_of_another_profile(home, store):
    home.config("[profile reader]\nPLACE\nrole_arn = arn:aws:iam::1:role/reader\nsource_profile = base\n")
    home.credentials("[base]\naws_access_key_id = BASEKEY\naws_secret_access_key = base-secret\n")
    with Portal() as portal:
        assert home.digest(AWS_PROFILE="reader", AWS_ENDPOINT_URL_STS=portal.url) == store[1]
        body, key = portal.seen[0]
        assert "Action=AssumeRole" in body and "role%2Freader" in body and key.endswith("BASEKEY")


def test_a_login_by_sso_gives_credentials(home, store):
    write_sso(home)
    with Portal() as portal:
        env = {"AWS_PROFILE": "team", "AWS_ENDPOINT_URL_SSO": portal.url}
        assert home.digest(**env) == store[1]
        path, token = portal.seen[0]
        assert token == "token-of-login" and "role_name=reader" in path and "account_id=123456789012" in path
        portal.status = 401
        (home.folder / "index" / "current").unlink()
        error = home.error(**env)
        assert "Session token not found" in error and "aws sso login --profile team" in error and "token-of" not in error


def test_an_old_login_by_sso_says_to_log_in_again(home):
    write_sso(home, expires=-60)
    error = home.error(AWS_PROFILE="team")
    assert "expired" in error and "aws sso login --profile team" in error and str(home.folder / ".aws" / "config") in error


def test_a_missing_login_says_to_log_in(home):
    write_sso(home)
    next((home.folder / ".aws" / "sso" / "cache").iterdir()).unlink()
    error = home.error(AWS_PROFILE="team")
    assert "failed to load the cached SSO token" in error and "aws sso login --profile team" in error


def test_requests_for_credentials_need_tls(home):
    write_sso(home)
    error = home.error(AWS_PROFILE="team", AWS_ENDPOINT_URL_SSO="http://portal.invalid")
    assert "portal.invalid has no TLS" in error and "login" not in error


def test_a_missing_profile_is_named_with_its_files(home):
    home.config("[profile present]\nPLACE\n")
    error = home.error(AWS_PROFILE="absent")
    assert "expected [profile absent] in" in error and str(home.folder / ".aws" / "credentials") in error


def test_a_broken_file_is_named_with_its_line(home):
    home.config("[profile a]\nregion = x\nnothing\n")
    error = home.error(AWS_PROFILE="a")
    assert f"{home.folder}/.aws/config: not a file of AWS profiles: on line 3: Expected an '='" in error
    (home.folder / ".aws" / "config").write_bytes(b"[profile a]\n\xff\xfe = x\n")
    assert "UTF-8" in home.error(AWS_PROFILE="a")
    (home.folder / ".aws" / "config").write_text("#" * (2 << 20))
    assert "larger than" in home.error(AWS_PROFILE="a")
    assert "not a file" in home.error(AWS_PROFILE="a", AWS_CONFIG_FILE="/dev/zero")


@pytest.mark.parametrize("profile, message", [
    ("role_arn = arn:aws:iam::1:role/r\nsource_profile = away\n", "away"),
    ("role_arn = arn:aws:iam::1:role/r\nsource_profile = two\n[profile two]\nrole_arn = x\nsource_profile = one\n", "loop"),
    ("aws_access_key_id = A\n", "aws_secret_access_key"),
    ("sso_session = away\nsso_account_id = 1\nsso_role_name = r\n", "away"),
])
def test_a_profile_that_leads_nowhere_is_refused(home, profile, message):
    home.config(f"[profile one]\nPLACE\n{profile}")
    error = home.error(AWS_PROFILE="one")
    assert message in error and "the AWS profile 'one' of" in error


def test_a_program_that_fails_is_quoted(home):
    home.config(f"[profile program]\nPLACE\ncredential_process = {home.program('echo no card >&2; exit 3')}\n")
    error = home.error(AWS_PROFILE="program")
    assert "no card" in error and "exit status: 3" in error and "'program' of" in error
    home.config(f"[profile program]\nPLACE\ncredential_process = {home.program('echo {}')}\n")
    assert "its credential_process, could not parse response" in home.error(AWS_PROFILE="program")
    home.config(f"[profile program]\nPLACE\ncredential_process = {home.program(f'echo {chr(39)}{answer_of(stamp(-9))}{chr(39)}')}\n")
    assert "have expired" in home.error(AWS_PROFILE="program")


def is_running(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_program_that_hangs_is_ended(tmp_path, store):
    home = Home(tmp_path, store[0], 'stores: [{url: "s3://", timeout_seconds: 0.5, retries: 1}]\n')
    home.config(f"[profile program]\nPLACE\ncredential_process = {home.program('echo $$ > ~/pid; sleep 600')}\n")
    begin = time.monotonic()
    assert "credential_process did not end within 1.0 s" in home.error(AWS_PROFILE="program")
    assert time.monotonic() - begin < 30
    end = time.monotonic() + 10
    while is_running((tmp_path / "pid").read_text().strip()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_running((tmp_path / "pid").read_text().strip())
