"""The script that runs Rerun's end-to-end tests on a server, tried with a small checkout: its kills, and its words.

Rerun's own tests need a clone of its repository; these stand in for them, and want the same of a lake: entries, files
and rows that are there after the server was killed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rerun.catalog")

SCRIPT = Path(__file__).with_name("served_tests.py")
TESTS = {
    "conftest.py": """
        import pytest
        from rerun.catalog import CatalogClient

        def pytest_addoption(parser):
            parser.addoption("--redap-url")

        @pytest.fixture(scope="session")
        def client(request):
            return CatalogClient(request.config.getoption("--redap-url"))
    """,
    "test_first.py": """
        import pyarrow as pa
        import rerun as rr

        def test_dataset(client, tmp_path):
            with rr.RecordingStream("tests", recording_id="one") as recording:
                recording.save(tmp_path / "one.rrd")
                recording.set_time("frame", sequence=3)
                recording.log("points", rr.Points3D([[1, 2, 3]]))
            client.create_dataset("drives").register((tmp_path / "one.rrd").as_uri()).wait()

        def test_table(client):
            client.create_table("labels", pa.schema([("label", pa.string())])).append(label=["fog"])
    """,
    "test_second.py": """
        def test_dataset(client):
            dataset = client.get_dataset("drives")
            assert dataset.segment_ids() == ["one"]
            assert dataset.reader(index="frame").to_pydict()["frame"] == [3]

        def test_table(client):
            assert client.get_table("labels").reader().to_pydict() == {"label": ["fog"]}

        def test_cancellation_mid_stream_still_produces_snapshot():
            raise AssertionError("is left out")
    """,
    "test_third.py": """
        def test_nothing(client):
            assert client.table_names() == ["rows"]
    """,
}


@pytest.mark.slow
def test_the_lake_outlives_the_server(tmp_path: Path) -> None:
    """The tests of two files pass with a kill between them, and one that fails is told."""
    checkout = tmp_path / "checkout"
    for name, text in TESTS.items():
        lines = text.replace("\n        ", "\n")
        written(checkout / "rerun_py" / "tests" / "e2e_redap_tests" / name, lines)
    for folder in ("tests/assets", "crates/store/re_importer/src/importer_mcap/tests/assets"):
        written(checkout / folder / "none", "")
    git = ["git", "-C", str(checkout), "-c", "user.name=tests", "-c", "user.email=tests"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "Tests"]):
        subprocess.run([*git, *command], check=True)
    serve = f"{sys.executable} -m chunkmill serve {tmp_path / 'lake'} --create --port {{port}} --allow {{folder}}"
    command = [sys.executable, str(SCRIPT), str(checkout), "--ref", "HEAD", "--server", serve, "--kill"]
    ran = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=False, timeout=300)
    assert ran.returncode == 1, ran.stdout
    assert "the server was killed and started again 2 times" in ran.stdout
    assert "portable: 5, passed: 4, left out: 1" in ran.stdout
    assert "test_third.py::test_nothing" in ran.stdout.partition("short test summary info")[2]


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
