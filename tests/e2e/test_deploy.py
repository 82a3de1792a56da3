"""deploy/: what it says of the worker is what the worker does."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import urllib.request

import pytest
import yaml

import certificates
import harness
import media
import prometheus

DEPLOY = harness.ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
TRUSTED = KUBERNETES / "trusted-data-network"
GPU_NODES = KUBERNETES / "gpu-nodes"
INDEX = KUBERNETES / "index"
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def documents(folder=KUBERNETES):
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return [document for name in kustomization["resources"] for document in yaml.safe_load_all((folder / name).read_text())]


def one(kind, folder=KUBERNETES):
    found, = [document for document in documents(folder) if document["kind"] == kind]
    return found


def pod():
    return one("Deployment")["spec"]["template"]["spec"]


def container():
    found, = pod()["containers"]
    return found


def arguments():
    """{flag: value} of the worker's command line."""
    command, *flags = container()["args"]
    assert command == "serve"
    return dict(flag.split("=", 1) for flag in flags)


def size(text):
    number, unit = re.fullmatch(r"(\d+)(\w*)", text).groups()
    return int(number) * UNITS[unit]


def test_every_file_is_used():
    named = set()
    for folder in (KUBERNETES, KUBERNETES / "monitoring", TRUSTED, GPU_NODES, INDEX):
        kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
        named |= {folder / patch["path"] for patch in kustomization.get("patches", [])}
        named |= {folder / "kustomization.yaml", *(folder / name for name in kustomization["resources"])}
        named |= {folder / name for made in kustomization.get("configMapGenerator", []) for name in made["files"]}
    assert named == {path for path in KUBERNETES.rglob("*") if path.is_file()}


def test_every_flag_is_one_of_the_worker_and_documented():
    options = set(re.findall(r"(--[a-z-]+)", harness.run("serve", "--help").stdout))
    documented = (harness.ROOT / "docs" / "worker.md").read_text() + (harness.ROOT / "docs" / "safety.md").read_text()
    assert len(arguments()) == len(container()["args"]) - 1
    for flag in arguments():
        assert flag in options, flag
        assert re.search(rf"{flag}\b", documented), flag


def test_every_port_is_the_worker_s_and_documented():
    flags, guide = arguments(), (harness.ROOT / "docs" / "deploy.md").read_text()
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert ports == {"control": int(flags["--listen"].rsplit(":", 1)[1]),
                     "metrics": int(flags["--metrics"].rsplit(":", 1)[1]),
                     "probes": int(flags["--probes"].rsplit(":", 1)[1])}
    for flag in ("--listen", "--metrics", "--probes"):
        assert flags[flag].startswith("0.0.0.0:"), "else nothing outside of the pod reaches it"
    service = one("Service")["spec"]
    assert {port["targetPort"]: port["port"] for port in service["ports"]} | {"probes": ports["probes"]} == ports
    assert service["clusterIP"] == "None", "consumers look up every worker"
    for port in ports.values():
        assert str(port) in guide
    assert f"dns:///{one('Service')['metadata']['name']}" in guide
    trainers, scraper = one("NetworkPolicy")["spec"]["ingress"]
    assert [port["port"] for port in trainers["ports"]] == ["control"]
    assert [port["port"] for port in scraper["ports"]] == ["metrics"]
    endpoint, = one("PodMonitor", KUBERNETES / "monitoring")["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("metrics", "/metrics")


def patched(kind):
    """A document of the base as the component for trusted data networks leaves it."""
    document = one(kind)
    for patch in yaml.safe_load((TRUSTED / "kustomization.yaml").read_text())["patches"]:
        if patch["target"] != {"kind": kind, "name": document["metadata"]["name"]}:
            continue
        for change in yaml.safe_load((TRUSTED / patch["path"]).read_text()):
            assert change["op"] == "add"
            *way, last = change["path"].strip("/").split("/")
            place = document
            for step in way:
                place = place[int(step) if isinstance(place, list) else step]
            assert isinstance(place, list) and last == "-"
            place.append(change["value"])
    return document


def test_the_trusted_component_opens_the_ports_of_its_workers():
    found, = patched("Deployment")["spec"]["template"]["spec"]["containers"]
    added = [flag for flag in found["args"] if flag not in container()["args"]]
    assert added[0] == "--trusted-data-network"
    first, last = re.fullmatch(r"--data-ports=(\d+)-(\d+)", added[1]).groups()
    options = harness.run("serve", "--help").stdout
    assert "--trusted-data-network" in options and "--data-ports" in options
    trainers, _ = patched("NetworkPolicy")["spec"]["ingress"]
    assert trainers["ports"] == [{"protocol": "TCP", "port": "control"},
                                 {"protocol": "TCP", "port": int(first), "endPort": int(last)}]
    policy = one("NetworkPolicy", TRUSTED)["spec"]
    assert policy["podSelector"] == trainers["from"][0]["podSelector"], "those that reach the workers"
    rule, = policy["ingress"]
    assert rule["from"] == [{"podSelector": policy["podSelector"]}], "only each other, and not workers either"
    assert "trusted-data-network" in (harness.ROOT / "docs" / "deploy.md").read_text()


def test_workers_of_gpu_nodes_are_the_fleet_s_in_another_place():
    fleet, nodes = one("Deployment")["spec"], one("DaemonSet", GPU_NODES)["spec"]
    place = {"evenkeel-place": "gpu-node"}
    assert nodes["selector"]["matchLabels"] == {**fleet["selector"]["matchLabels"], **place}
    assert nodes["template"]["metadata"]["labels"] == nodes["selector"]["matchLabels"], "the service and policies select them, too"
    ours, theirs = nodes["template"]["spec"], fleet["template"]["spec"]
    assert ours.pop("hostNetwork") is True and ours.pop("dnsPolicy") == "ClusterFirstWithHostNet"
    assert ours.pop("nodeSelector") and ours.pop("tolerations")
    theirs.pop("topologySpreadConstraints")
    # The port that consumers dial is the same; the node's own exporter has the other two.
    own, = ours["containers"]
    own["args"] = [flag.replace(":911", ":910") for flag in own["args"]]
    for port in own["ports"][1:]:
        port["containerPort"] -= 10
    assert ours == theirs
    assert own["resources"]["requests"] == own["resources"]["limits"] and own["resources"]["limits"]["cpu"].isdigit()


def index_jobs():
    """(the job of the parts, the job that merges them)."""
    parts, merge = documents(INDEX)
    assert (parts["kind"], merge["kind"]) == ("Job", "Job")
    return parts["spec"], merge["spec"]


def index_command(spec, environment, job):
    """What a pod runs, with this job file: (words, environment)."""
    found, = spec["template"]["spec"]["containers"]
    values = {one["name"]: one.get("value", "2") for one in found["env"]} | environment
    if "command" in found:
        assert found["command"] == ["sh", "-c"]
        words = ["sh", "-c", found["args"][0].replace("evenkeel", f'"{harness.binary()}"', 1)]
    else:
        words = [harness.binary(), *(re.sub(r"\$\((\w+)\)", lambda name: values[name[1]], word) for word in found["args"])]
    return [word.replace("/etc/evenkeel/job/job.yaml", str(job)) for word in words], {**os.environ, **values}


def test_index_pods_are_confined_and_are_no_workers():
    labels = one("Deployment")["spec"]["template"]["metadata"]["labels"]
    for spec in index_jobs():
        found, = spec["template"]["spec"]["containers"]
        assert found["securityContext"] == container()["securityContext"]
        assert spec["template"]["spec"]["securityContext"] == pod()["securityContext"]
        assert spec["template"]["spec"]["automountServiceAccountToken"] is False
        assert not labels.items() <= spec["template"]["metadata"]["labels"].items()
        mounts = {mount["name"]: mount for mount in found["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in spec["template"]["spec"]["volumes"]}
        assert mounts.keys() == volumes.keys() and not mounts["data"].get("readOnly")
        assert volumes["data"]["persistentVolumeClaim"] == {"claimName": "evenkeel-data"}
        assert spec["podFailurePolicy"]["rules"][0]["onExitCodes"]["containerName"] == found["name"]
        assert spec["template"]["spec"]["restartPolicy"] == "Never", "a policy for failures needs it"


def test_parts_and_merge_are_alike_but_for_what_they_run():
    parts, merge = index_jobs()
    assert merge["suspend"] is True and "suspend" not in parts
    ours, theirs = (spec["template"]["spec"] for spec in (parts, merge))
    for spec in (ours, theirs):
        found, = spec["containers"]
        found.pop("args"), found.pop("command", None)
        found["env"] = [one for one in found["env"] if one["name"] != "PARTS"]
    assert ours == theirs


def test_every_part_is_one_of_as_many_as_there_are_pods():
    parts, _ = index_jobs()
    found, = parts["template"]["spec"]["containers"]
    count, = [one["value"] for one in found["env"] if one["name"] == "PARTS"]
    assert parts["completionMode"] == "Indexed" and parts["completions"] == parts["parallelism"] == int(count)
    options = harness.run("index", "--help").stdout
    for flag in re.findall(r"--[a-z-]+", found["args"][0]):
        assert flag in options


def test_the_pods_of_an_index_make_it(tmp_path):
    media.write_mixed_shards(tmp_path, "a", 3, 16, seed=3)
    damaged = (tmp_path / "a-001.tar").read_bytes()
    (tmp_path / "a-001.tar").write_bytes(damaged[:len(damaged) // 2])
    datasets = [("a", "a-{000..002}.tar", 1)]
    job = harness.write_job(tmp_path / "job.yaml", datasets, ranks=1, batch="{samples: 4}")
    alone = harness.write_job(tmp_path / "alone.yaml", datasets, ranks=1, batch="{samples: 4}", index="alone")
    made = harness.run("index", "--job", alone, check=False)
    parts, merge = index_jobs()
    for number in range(3):
        words, environment = index_command(parts, {"PARTS": "3", "JOB_COMPLETION_INDEX": str(number)}, job)
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    words, environment = index_command(merge, {}, job)
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == made.returncode == 5 and "0 measured again, 3 unchanged" in done.stdout, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == made.stdout.splitlines()[-1]
    assert done.stdout.splitlines()[-1].startswith("digest")
    harness.run("plan", "--job", job, "--step", 0)


def test_the_commands_for_an_index_name_what_is_there():
    text = (harness.ROOT / "docs" / "deploy.md").read_text()
    section = text.split("## An index in parts", 1)[1].split("\n## ", 1)[0]
    names = {document["metadata"]["name"] for document in documents(INDEX)}
    assert set(re.findall(r"job/([a-z-]+)", section)) == names
    for spec in index_jobs():
        maps = [volume["configMap"]["name"] for volume in spec["template"]["spec"]["volumes"] if "configMap" in volume]
        assert f"create configmap {maps[0]} --from-file=job.yaml" in section


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_makes_both_jobs_of_an_index():
    made = subprocess.run(["kubectl", "kustomize", INDEX], capture_output=True, text=True, check=True).stdout
    found = list(yaml.safe_load_all(made))
    assert [document["kind"] for document in found] == ["Job", "Job"]
    image, = yaml.safe_load((INDEX / "kustomization.yaml").read_text())["images"]
    for document in found:
        container, = document["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"{image['newName']}:{image['newTag']}"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_a_budget_counts_no_worker_of_a_daemon_set(tmp_path):
    shutil.copytree(KUBERNETES, tmp_path / "base")
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "kustomization.yaml").write_text(yaml.safe_dump(
        {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": ["../base"],
         "components": ["../base/gpu-nodes"]}))
    made = subprocess.run(["kubectl", "kustomize", tmp_path / "all"], capture_output=True, text=True, check=True).stdout
    found = {document["kind"]: document for document in yaml.safe_load_all(made)}
    budget = found["PodDisruptionBudget"]["spec"]["selector"]
    assert budget["matchExpressions"] == [{"key": "evenkeel-place", "operator": "DoesNotExist"}]
    assert "evenkeel-place" in found["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert "evenkeel-place" not in found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    fleet, nodes = (found[kind]["spec"]["template"]["spec"] for kind in ("Deployment", "DaemonSet"))
    assert nodes["containers"][0]["image"] == fleet["containers"][0]["image"]
    assert nodes["volumes"] == fleet["volumes"], "the job under the name that its content gives it"


def test_everything_selects_the_workers_and_only_them():
    labels = one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert selectors(documents()) == [labels] * 5
    # Monitoring finds the workers of every job.
    monitored = one("PodMonitor", KUBERNETES / "monitoring")["spec"]["selector"]["matchLabels"]
    assert labels == {**monitored, "app.kubernetes.io/instance": "evenkeel"}


def selectors(found):
    """What the deployment, the service, the budget and the policy select, and what the deployment spreads."""
    specs = {document["kind"]: document["spec"] for document in found if "spec" in document}
    return [specs["Deployment"]["selector"]["matchLabels"], specs["Service"]["selector"],
            specs["PodDisruptionBudget"]["selector"]["matchLabels"], specs["NetworkPolicy"]["podSelector"]["matchLabels"],
            *[spread["labelSelector"]["matchLabels"]
              for spread in specs["Deployment"]["template"]["spec"]["topologySpreadConstraints"]]]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_a_job_under_another_name_has_its_own_workers(tmp_path):
    text = (harness.ROOT / "docs" / "deploy.md").read_text()
    overlay = yaml.safe_load(re.search(r"```yaml\n(   nameSuffix:.*?)```", text, re.DOTALL)[1])
    shutil.copytree(KUBERNETES, tmp_path / "base")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "kustomization.yaml").write_text(yaml.safe_dump(
        {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": ["../base"], **overlay}))
    new = list(yaml.safe_load_all(subprocess.run(["kubectl", "kustomize", tmp_path / "new"], capture_output=True, text=True,
                                                 check=True).stdout))
    old_labels, new_labels = [
        next(document for document in found if document["kind"] == "Deployment")["spec"]["template"]["metadata"]["labels"]
        for found in (documents(), new)]
    assert selectors(new) == [new_labels] * 5
    for found, others in ((documents(), new_labels), (new, old_labels)):
        for selector in selectors(found):
            assert not selector.items() <= others.items(), "the other job's workers are selected, too"
    assert not {document["metadata"]["name"] for document in new} & {document["metadata"]["name"] for document in documents()}


def test_a_pod_has_the_time_to_drain():
    pause = float(container()["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod()["terminationGracePeriodSeconds"] > pause + float(arguments()["--drain-timeout"]) + 5


def test_a_pod_has_the_memory_that_it_may_take():
    limits, flags = container()["resources"]["limits"], arguments()
    assert container()["resources"]["requests"] == limits
    # docs/worker.md and docs/safety.md; --plan-memory has its default.
    taken = (size(flags["--memory"]) + (256 << 20) + int(limits["cpu"]) * size(flags["--decoder-memory"])
             + (128 << 20))
    assert 1.25 * taken <= size(limits["memory"])


def test_every_path_is_mounted_and_every_mount_has_a_volume():
    mounts = {mount["name"]: mount for mount in container()["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    assert mounts.keys() == volumes.keys()
    for flag in ("--job", "--tls-cert", "--tls-key", "--tls-ca"):
        assert str(pathlib.PurePath(arguments()[flag]).parent) in {mount["mountPath"] for mount in mounts.values()}
    made, = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["configMapGenerator"]
    assert volumes["job"]["configMap"]["name"] == made["name"]
    assert made["files"] == [pathlib.PurePath(arguments()["--job"]).name]
    job = yaml.safe_load((KUBERNETES / "job.yaml").read_text())
    for path in (job["index"], job["processor"]["folder"], *job["datasets"][0]["shards"]):
        assert path.startswith(mounts["data"]["mountPath"] + "/")


def serve_as_deployed(folder, job, wrapper=()):
    """The deployed command line with this folder's files, ports that are free, and what a test's machine has."""
    party = certificates.Party(folder, "worker")
    flags = {**arguments(), "--job": job, "--listen": "0.0.0.0:0", "--metrics": "127.0.0.1:0", "--probes": "127.0.0.1:0",
             "--tls-cert": party.certificate, "--tls-key": party.key, "--tls-ca": party.ca, "--threads": 2}
    assert flags.keys() == arguments().keys()
    return harness.Worker(job, *[f"{flag}={value}" for flag, value in flags.items() if flag not in ("--job", "--listen")],
                          listen=flags["--listen"], wrapper=wrapper), party


@pytest.fixture(scope="module")
def deployed(mixed, tmp_path_factory):
    context, capabilities = container()["securityContext"], ()
    assert context == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    if shutil.which("setpriv") is not None:
        capabilities = ("setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all")
        if subprocess.run([*capabilities, "true"], capture_output=True).returncode != 0:  # not root
            capabilities = ("setpriv", "--no-new-privs")
    worker, party = serve_as_deployed(tmp_path_factory.mktemp("deployed"), mixed / "job.yaml", capabilities)
    yield worker, party, mixed
    worker.kill()


def test_the_command_line_serves_and_the_probes_are_answered(deployed):
    worker, party, folder = deployed
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        request = container()[probe]["httpGet"]
        assert request["port"] == "probes"
        with urllib.request.urlopen(f"http://{worker.facts['probes']}{request['path']}", timeout=60) as answer:
            assert answer.status == 200 and answer.read() == b"ok\n"
    port = worker.address.rsplit(":", 1)[1]
    done = harness.run("fetch", "--endpoints", f"localhost:{port}", "--job", folder / "job.yaml", "--steps", 1, "--ranks", 1,
                       *party.flags())
    assert done.stdout


def test_a_deployed_worker_ends_with_sigterm(mixed, tmp_path):
    worker, _ = serve_as_deployed(tmp_path, mixed / "job.yaml")
    worker.signal(signal.SIGTERM)
    assert worker.process.wait(harness.DEADLINE_SECONDS) == 0


def metrics_of(worker):
    with urllib.request.urlopen(f"http://{worker.facts['metrics']}/metrics", timeout=60) as answer:
        return prometheus.parse(answer.read().decode())


def test_the_dashboard_uses_existing_metrics_and_labels(deployed):
    worker, _, _ = deployed
    families = metrics_of(worker)
    board = json.loads((KUBERNETES / "monitoring" / "dashboard.json").read_text())
    source, namespace = board["templating"]["list"]
    assert (source["name"], source["type"]) == ("DS_PROMETHEUS", "datasource")
    assert re.search(r"label_values\((\w+), namespace\)", namespace["query"]["query"]).group(1) in families
    shown = set()
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            assert panel["datasource"] == {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}, panel["title"]
            asked = re.findall(r"(evenkeel_\w+)\{namespace=\"\$namespace\"\}", target["expr"])
            assert len(asked) == len(re.findall("evenkeel_", target["expr"])) > 0, target["expr"]
            names = {re.sub("_(bucket|sum)$", "", name) for name in asked}
            assert names <= families.keys(), target["expr"]
            shown |= names
            labels = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", target["expr"])))) - {"le", "pod"}
            written = set(re.findall(r"{{(\w+)}}", target["legendFormat"])) - {"pod"}
            assert written <= labels <= families[asked[0].removesuffix("_bucket").removesuffix("_sum")].label_names()
    assert shown == {name for name in families if name.startswith("evenkeel_")}, "every metric has its panel"


def test_panels_lie_side_by_side():
    board = json.loads((KUBERNETES / "monitoring" / "dashboard.json").read_text())
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    places = [(panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y) for panel in board["panels"]
              for x in range(panel["gridPos"]["w"]) for y in range(panel["gridPos"]["h"])]
    assert len(set(places)) == len(places) and max(x for x, _ in places) < 24


def test_the_alerts_name_metrics_that_are_there(deployed):
    worker, _, _ = deployed
    families = metrics_of(worker)
    rules = [rule for group in one("PrometheusRule", KUBERNETES / "monitoring")["spec"]["groups"] for rule in group["rules"]]
    assert len(rules) == len({rule["alert"] for rule in rules}) > 0
    for rule in rules:
        for name, label, value in re.findall(r'(evenkeel_\w+)(?:\{(\w+)="(\w+)"\})?', rule["expr"]):
            assert name in families, rule["alert"]
            # There is no RDMA here: the label is known, its value is not.
            assert not label or value in families[name].by(label) or label == "rdma", rule["alert"]


def test_no_label_is_one_that_prometheus_sets_itself(deployed):
    """A label `job` of ours would be renamed to exported_job, and a panel would show the scrape's own."""
    worker, _, _ = deployed
    for family in metrics_of(worker).values():
        assert not family.label_names() & {"job", "instance"}, family.name


def promtool():
    """Debian's promtool, without its service: unpacked where scripts/test keeps it, or installed; None where neither is."""
    unpacked = harness.ROOT / "build" / "tools" / "usr" / "bin" / "promtool"
    return str(unpacked) if unpacked.exists() else shutil.which("promtool")


# Series of two workers that are well, as promtool writes them, and for each alert what makes it fire.
WELL = {
    'evenkeel_build_info{namespace="n", pod="a"}': "1x120", 'evenkeel_build_info{namespace="n", pod="b"}': "1x120",
    'evenkeel_ranks{namespace="n", pod="a"}': "64x120", 'evenkeel_ranks{namespace="n", pod="b"}': "64x120",
    'evenkeel_consumer_wait_seconds_total{namespace="n", pod="a"}': "0+30x120",
    'evenkeel_part_requests_total{namespace="n", pod="a", outcome="sent"}': "0+600x120",
    'evenkeel_part_requests_total{namespace="n", pod="a", outcome="refused"}': "0+30x120",
    'evenkeel_part_requests_total{namespace="n", pod="a", outcome="failed"}': "0x120",
    'evenkeel_errors_total{namespace="n", pod="a", reason="DATA_LOSS"}': "0x120",
    'evenkeel_errors_total{namespace="n", pod="a", reason="attempt_UNAVAILABLE"}': "0+1x120",
    'evenkeel_decoder_restarts_total{namespace="n", pod="a", reason="crash"}': "0x120",
    'evenkeel_buffers_abandoned_total{namespace="n", pod="a"}': "0x120",
    # One failed self-test in two hours and a refused connection every two seconds are no fault yet.
    'evenkeel_self_test_failures_total{namespace="n", pod="a"}': "0x60 1x60",
    'evenkeel_connections_refused_total{namespace="n", pod="a", reason="places"}': "0+30x120",
    'evenkeel_transport_info{namespace="n", pod="a", rdma="true"}': "1x120",
    'evenkeel_transport_info{namespace="n", pod="b", rdma="true"}': "1x120",
    'evenkeel_certificate_expires_in_seconds{namespace="n", pod="a"}': "2000000-60x120",
    'evenkeel_certificate_files_refused{namespace="n", pod="a"}': "0x120",
    'evenkeel_stream_info{namespace="n", pod="a", stream_job="j", stream_digest="1"}': "1x120",
    'evenkeel_stream_info{namespace="n", pod="b", stream_job="j", stream_digest="1"}': "1x120",
}
FIRING = {
    "EvenkeelConsumersWait": {'evenkeel_consumer_wait_seconds_total{namespace="n", pod="a"}': "0+384x120"},
    "EvenkeelPartsFail": {'evenkeel_part_requests_total{namespace="n", pod="a", outcome="failed"}': "0+1x120"},
    "EvenkeelDecodersRestart": {'evenkeel_decoder_restarts_total{namespace="n", pod="a", reason="crash"}': "0+1x120"},
    "EvenkeelUnreachable": {'evenkeel_self_test_failures_total{namespace="n", pod="a"}': "0+1x120"},
    "EvenkeelConnectionsRefused": {
        'evenkeel_connections_refused_total{namespace="n", pod="a", reason="places"}': "0+90x120"},
    "EvenkeelBuffersAbandoned": {'evenkeel_buffers_abandoned_total{namespace="n", pod="a"}': "0+1x120"},
    "EvenkeelBadData": {'evenkeel_errors_total{namespace="n", pod="a", reason="DATA_LOSS"}': "0+1x120"},
    "EvenkeelWorkersFull": {'evenkeel_part_requests_total{namespace="n", pod="a", outcome="refused"}': "0+200x120"},
    "EvenkeelWorkerLost": {'evenkeel_build_info{namespace="n", pod="b"}': "1x80"},
    "EvenkeelRdmaLost": {'evenkeel_transport_info{namespace="n", pod="b", rdma="true"}': "1x80"},
    "EvenkeelCertificateExpires": {'evenkeel_certificate_expires_in_seconds{namespace="n", pod="a"}': "88000-60x120"},
    "EvenkeelCertificateFilesRefused": {'evenkeel_certificate_files_refused{namespace="n", pod="a"}': "1x120"},
    "EvenkeelTwoStreams": {'evenkeel_stream_info{namespace="n", pod="b", stream_job="j", stream_digest="1"}': "1x80",
                           'evenkeel_stream_info{namespace="n", pod="b", stream_job="j", stream_digest="2"}': "_x80 1x40"},
}


@pytest.mark.parametrize("alert", ["", *sorted(FIRING)])
def test_each_alert_fires_for_its_fault_and_for_no_other(tmp_path, alert):
    if promtool() is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    groups = one("PrometheusRule", KUBERNETES / "monitoring")["spec"]
    names = [rule["alert"] for group in groups["groups"] for rule in group["rules"]]
    assert sorted(names) == sorted(FIRING), "every alert has its fault here"
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(groups))
    series = {**WELL, **FIRING.get(alert, {})}
    # promtool compares whole alerts; what the expression yields is enough: firing is its value for `for` minutes.
    tests = [{"interval": "1m",
              "input_series": [{"series": name, "values": values} for name, values in series.items()],
              "promql_expr_test": [
                  {"expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}})', "eval_time": "115m",
                   "exp_samples": [{"value": 1}] if name == alert else []} for name in names]}]
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m",
                                                        "tests": tests}))
    done = subprocess.run([promtool(), "test", "rules", tmp_path / "test.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def needed(program):
    """The shared libraries that a program is linked with."""
    path = pathlib.Path(harness.binary()).with_name(program)
    return set(re.findall(r"NEEDED\s+(\S+)", subprocess.run(["objdump", "-p", path], check=True, capture_output=True,
                                                            text=True).stdout))


def test_commands_without_a_network_link_no_grpc():
    for library in needed("evenkeel") | needed("evenkeel-data"):
        assert not re.search("grpc|prometheus|ucp|civetweb", library), library
    assert any("grpc" in library for library in needed("evenkeel-network"))


def test_the_planner_starts_without_decoders():
    for library in needed("evenkeel"):
        assert not re.search("avcodec|jpeg|png|seccomp|mpg123|soxr", library), library
    assert any("avcodec" in library for library in needed("evenkeel-data"))


def test_the_image_has_the_libraries_that_programs_link():
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    final = dockerfile[dockerfile.index("bookworm-slim"):]
    installed = set(re.search(r"--no-install-recommends (.*?) && rm", final.replace("\\\n", " "), re.DOTALL).group(1).split())
    installed |= {"libc6", "libgcc-s1", "libstdc++6"}  # of the base image
    linked = needed("evenkeel") | needed("evenkeel-data") | needed("evenkeel-network")
    packages = set()
    loaded = re.findall(r'kLibrary\[\] = "(\S+)"', (harness.ROOT / "transport" / "ucx_library.cc").read_text())
    for library in sorted(linked | set(loaded)):
        owners = subprocess.run(["dpkg-query", "-S", f"*/{library}"], capture_output=True, text=True).stdout
        owners = {line.split(":")[0] for line in owners.splitlines() if not re.search(r"i386|x32|lib32|-dev|cross", line)}
        if not owners:
            pytest.skip(f"{library} is of no Debian package here")
        packages |= owners
    assert packages | {"ca-certificates"} == installed  # certificates are files that programs read, not link


def test_the_image_is_of_this_release():
    version = re.search(r"project\(evenkeel VERSION (\S+)", (harness.ROOT / "CMakeLists.txt").read_text()).group(1)
    image, = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["images"]
    assert yaml.safe_load((GPU_NODES / "kustomization.yaml").read_text())["images"] == [image]
    assert image["name"] == container()["image"] and image["newTag"] == version
    assert f":{version} " in (DEPLOY / "Dockerfile").read_text()


def test_a_pod_is_confined():
    assert pod()["securityContext"]["runAsNonRoot"] and pod()["securityContext"]["runAsUser"] > 0
    assert f"USER {pod()['securityContext']['runAsUser']}:" in (DEPLOY / "Dockerfile").read_text()
    assert pod()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod()["automountServiceAccountToken"] is False
    writable = [mount["name"] for mount in container()["volumeMounts"] if not mount.get("readOnly")]
    assert writable == ["tmp"]
