"""Run Rerun's own tests of its chunk API and its catalog on chunkmill: the same tests, only their imports mapped.

    python tests/conformance/peer_tests.py CHECKOUT --executor inline
    python tests/conformance/peer_tests.py CHECKOUT --executor spark --assets ../shared/data -k split

CHECKOUT is a clone of Rerun's repository, with or without a work tree; it is read, and nothing of it is kept. The tests
are those of ``--ref``, by default the version of the installed rerun-sdk, which makes the recordings that they read.
Beside it they need ``inline-snapshot``, ``syrupy`` and ``av``. Files of theirs that lie in Git LFS are looked for in
``--assets`` by their digests. In place of the recordings that the tests of the catalog share stand others by the same
ids, which their own script makes; Rerun's server says first what the tests expect of them. What follows the options
goes to pytest.

Says at the end how many tests passed, and which were left out, for what reason. Ends with 1 where one failed.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FILES = (
    "e2e_redap_tests/test_blueprint_dataset.py",
    "e2e_redap_tests/test_catalog_navigation.py",
    "e2e_redap_tests/test_client.py",
    "e2e_redap_tests/test_dataframe_query_view.py",
    "e2e_redap_tests/test_datafusion_tables.py",
    "e2e_redap_tests/test_datafusion_utils.py",
    "e2e_redap_tests/test_dataset_entry.py",
    "e2e_redap_tests/test_dataset_query.py",
    "e2e_redap_tests/test_dataset_query_filter.py",
    "e2e_redap_tests/test_dataset_query_select_pushdown.py",
    "e2e_redap_tests/test_dataset_views.py",
    "e2e_redap_tests/test_entries.py",
    "e2e_redap_tests/test_index_ranges.py",
    "e2e_redap_tests/test_query_metrics_behaviors.py",
    "e2e_redap_tests/test_registration.py",
    "e2e_redap_tests/test_scan_path_errors.py",
    "e2e_redap_tests/test_segment_id.py",
    "e2e_redap_tests/test_segment_store.py",
    "e2e_redap_tests/test_table_create.py",
    "e2e_redap_tests/test_table_read.py",
    "e2e_redap_tests/test_table_write.py",
    "integration/test_chunk.py",
    "integration/test_chunk_from_record_batch.py",
    "integration/test_chunk_store.py",
    "integration/test_lazy_chunk_store.py",
    "integration/test_lazy_chunk_stream.py",
    "integration/test_mcap_reader.py",
    "integration/test_parquet_reader.py",
    "integration/test_rrd_reader_multi_store.py",
    "integration/test_send_chunks.py",
    "unit/test_chunk_from_property.py",
    "unit/test_content_filter.py",
    "unit/test_filesink_threading.py",
    "unit/test_optimization_profile.py",
    "unit/test_optimization_profile_parity.py",
    "unit/test_readers.py",
    "unit/test_selector.py",
    "unit/test_time_column.py",
    "unit/test_video_utils.py",
)
"""The tests of what chunkmill has by the same name, below ``rerun_py/tests``."""

_BESIDE = ("e2e_redap_tests/conftest.py", "e2e_redap_tests/_helpers.py")
"""Files that the tests use, whose imports are mapped, too."""

NOT_PORTABLE = {
    "test_datafusion_error_surfaces_to_python_with_trace_id": "lets the SDK's server fail by a private method",
    "test_urls": "wants the address of a server",
    "test_datafusion_utils.py": "wants the address of a server",
    "test_lazy_store_filter_only_loads_matching": "looks at a private counter of the SDK's store",
    "test_round_trip_preserves_id": "asks for the list of 0.34 and newer from from_record_batch: 0.33's gives a chunk",
    "test_auto_index_sentinel_is_default": "compares the default of an argument with the SDK's own sentinel",
}
"""Tests, by their name or that of their file, that say nothing about chunkmill, and why."""

_FOLDERS = ("rerun_py/tests", "tests/assets", "crates/store/re_importer/src/importer_mcap/tests/assets")
_IMPORT = re.compile(
    r"^(\s*from) rerun\.(?:experimental\.video|experimental|chunk|server|catalog|catalog\._content_filter) import\b",
    re.M,
)
_LFS = re.compile(rb"version https://git-lfs\S+\s+oid sha256:(\w{64})\s")
_MISSING = "reads a file of Git LFS that is not at hand"


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--ref", default=version("rerun-sdk"))
    parser.add_argument("--executor", choices=("inline", "spark"), default="inline")
    parser.add_argument("--assets", type=Path)
    options, rest = parser.parse_known_args()
    os.environ.update(CHUNKMILL_EXECUTOR=options.executor, CHUNKMILL_MASTER="local[2,4]")
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    sys.modules["chunkmill_names"] = _names()
    with tempfile.TemporaryDirectory() as scratch:
        tests = extracted(options.checkout, options.ref, Path(scratch), options.assets)
        files = [str(tests / name) for name in FILES if (tests / name).exists()]
        settings = ["-q", "-p", "no:cacheprovider", "-p", "no:logging", "--rootdir", str(tests), "-c", os.devnull]
        return int(pytest.main([*settings, *files, *rest], plugins=[Portable()]))


def extracted(checkout: Path, ref: str, into: Path, assets: Path | None, *, mapped: bool = True) -> Path:
    """The folder of Rerun's tests as of ``ref`` with what they read beside them, their imports mapped unless told."""
    for folder in _FOLDERS:
        command = ["git", "-C", str(checkout), "archive", ref, folder]
        packed = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(into, filter="data")
    tests = into / "rerun_py" / "tests"
    _fill_pointers(into, assets)
    _make_table(tests / "e2e_redap_tests" / "resources" / "simple_datatypes")
    _make_recordings(tests)
    for name in (*FILES, *_BESIDE) if mapped else ():
        if (tests / name).exists():
            text = _IMPORT.sub(r"\1 chunkmill_names import", (tests / name).read_text(encoding="utf-8"))
            text = text.replace("rr.TimeColumn(", "__import__('chunkmill_names').TimeColumn(")
            (tests / name).write_text(text, encoding="utf-8")
    return tests


_HEXADECIMAL = re.compile(r"\b[0-9a-f]{32}\b")


def _make_recordings(tests: Path) -> None:
    """Make the recordings that the tests of the catalog share, where they lie in Git LFS, and what is expected of them.

    Their script makes them under the ids that the tests ask for, of which the first is one of the longer ones.
    Snapshots become what Rerun's own server gives for them.
    """
    made_by = tests / "e2e_redap_tests" / "resources" / "dataset" / "generate_dataset.py"
    known = tests / "e2e_redap_tests" / "__snapshots__" / "test_segment_id.ambr"
    if not made_by.exists() or any(made_by.parent.glob("*.rrd")):
        return
    ids = sorted(set(_HEXADECIMAL.findall(known.read_text(encoding="utf-8"))))
    short, long = iter(ids[1:11]), iter(ids[:1] + ids[11:])
    names = {f"file{n}": next(short if n % 2 else long) for n in range(1, len(ids) + 1)}
    text = made_by.read_text(encoding="utf-8").replace("import random\n", "import random\nrandom.seed(1)\n")
    text = text.replace("spawn=True", f"recording_id={names!r}[filename], send_properties=False")
    if int(version("rerun-sdk").split(".")[1]) > 33:
        ticks = "    rr.get_global_data_recording().set_log_tick_enabled(True)\n    rr.save("
        text = text.replace("    rr.save(", ticks)  # the tests read a timeline that is no longer written by default
    made_by.write_text(text, encoding="utf-8")
    blueprints = made_by.parents[1] / "blueprints" / "generate_blueprints.py"
    for script in filter(Path.exists, (made_by, blueprints)):
        subprocess.run([sys.executable, script.name], cwd=script.parent, check=True)
    settings = ["-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", *settings, "--snapshot-update", "--inline-snapshot=fix"]
    ran = subprocess.run([*command, "e2e_redap_tests"], cwd=tests, stdout=subprocess.PIPE, text=True, check=False)
    print("with Rerun itself:", ran.stdout.strip().splitlines()[-1])


def _make_table(place: Path) -> None:
    """Make the table that tests read, whose files are in Git LFS: they look at its columns, and whether it has rows."""
    if place.exists() and not any(place.glob("_versions/*")):
        import lance
        import pyarrow as pa

        table = pa.table({"id": pa.array([1, 2], pa.int32()), "bool_col": [True, None], "double_col": [0.5, None]})
        lance.write_dataset(table, place)


def _fill_pointers(folder: Path, assets: Path | None) -> None:
    """Put the files of Git LFS in the place of their pointers; those that are not at hand go."""
    wanted: dict[bytes, list[Path]] = defaultdict(list)
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_size < 1024 and (pointer := _LFS.match(path.read_bytes())):
            wanted[pointer[1]].append(path)
    for path in assets.rglob("*") if assets is not None and wanted else ():
        if path.is_file() and path.stat().st_size < 2**26:
            digest = hashlib.sha256(path.read_bytes()).hexdigest().encode()
            for pointer in wanted.pop(digest, ()):
                pointer.write_bytes(path.read_bytes())
    for pointer in (p for paths in wanted.values() for p in paths):
        pointer.unlink()


def _names() -> ModuleType:
    """Chunkmill's names in one module, from which the tests import them."""
    import chunkmill.engine.catalog
    import chunkmill.lenses
    import chunkmill.readers

    module = ModuleType("chunkmill_names")
    for home in (chunkmill.engine.catalog, chunkmill.lenses, chunkmill.readers, chunkmill.engine):
        vars(module).update({name: getattr(home, name) for name in home.__all__})
    video = chunkmill.engine.video
    vars(module).update({name: getattr(video, name) for name in video.__all__})
    return module


class Portable:
    """A plugin of pytest: leaves out what is not portable, and says at the end what was."""

    def __init__(self) -> None:
        self.left_out: dict[str, list[str]] = defaultdict(list)
        self.missing: list[str] = []

    def pytest_configure(self, config: pytest.Config) -> None:
        """Send what the tests send by a method of the SDK's with chunkmill's function."""
        import rerun
        from chunkmill.engine import send_chunks

        config.addinivalue_line("markers", "local_only: a mark of Rerun's")
        rerun.RecordingStream.send_chunks = lambda recording, chunks: send_chunks(chunks, recording=recording)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Take out the tests that say nothing about chunkmill."""
        kept = []
        for item in items:
            reason = _reason(item)
            if reason is None:
                kept.append(item)
            else:
                self.left_out[reason].append(item.nodeid)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """Take a test that misses a file of Git LFS out of the count."""
        report = yield
        if call.excinfo is not None and call.excinfo.errisinstance(FileNotFoundError) and ".git" not in str(item.path):
            name = str(getattr(call.excinfo.value, "filename", None) or getattr(call.excinfo.value, "path", ""))
            if "assets" in Path(name).parts:
                report.outcome = "skipped"
                report.longrepr = (str(item.path), 0, _MISSING)
                self.left_out[_MISSING].append(item.nodeid)
        return report

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what was left out, and the counts."""
        write = terminalreporter.write_line
        for reason, tests in sorted(self.left_out.items()):
            write(f"left out, for it {reason}: {len(tests)}")
            for test in tests:
                write(f"    {test}")
        stats = terminalreporter.stats
        passed, failed = (len(stats.get(name, ())) for name in ("passed", "failed"))
        failed += len(stats.get("error", ()))
        write(f"portable: {passed + failed}, passed: {passed}, left out: {sum(map(len, self.left_out.values()))}")


def _reason(item: pytest.Item) -> str | None:
    for key in (item.name, item.name.partition("[")[0], item.path.name):
        if key in NOT_PORTABLE:
            return NOT_PORTABLE[key]
    return None


if __name__ == "__main__":
    sys.exit(main())
