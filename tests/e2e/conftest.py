import os
import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import harness  # noqa: E402
import media  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: builds or waits for minutes; runs with EVENKEEL_SLOW=1")


def pytest_collection_modifyitems(items):
    here = str(pathlib.Path(__file__).resolve().parent)
    if os.path.exists(harness.binary()):
        return
    for item in items:
        if str(item.fspath).startswith(here):
            item.add_marker(pytest.mark.skip(reason=f"{harness.binary()} is not built (set EVENKEEL_BIN)"))


@pytest.fixture(scope="session")
def mixed(tmp_path_factory):
    """A folder with two datasets of mixed media, an index and the job: folder / job.yaml."""
    folder = tmp_path_factory.mktemp("mixed")
    media.write_mixed_shards(folder, "a", 3, 30, seed=1)
    media.write_mixed_shards(folder, "b", 2, 19, seed=2)
    job = harness.write_job(folder / "job.yaml", [("a", "a-{000..002}.tar", 2), ("b", "b-{000..001}.tar", 1)])
    harness.run("index", "--job", job)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
