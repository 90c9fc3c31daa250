"""Damage MP4 files and read and decode each; every one is read, or is an error with its place, within ten seconds.

python -m tests.run fuzz fuzz_videos [--mutants 2000] [--seed 1]
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from chunkmill.engine.storage.positional import open_positional
from chunkmill.engine.video import decode, demultiplex
from video_files import CODECS, mutants, video

_SECONDS = 10.0


def main() -> int:
    """Run it; 0 where nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sources = [video(codec) for codec in CODECS]
    sources += [video("h264", b_frames=True), video("h264", container_options={"movflags": "frag_keyframe+empty_moov"})]
    slowest = 0.0

    def read(path: Path) -> None:
        nonlocal slowest
        begin = time.monotonic()
        try:
            with open_positional(str(path)) as file, demultiplex(file, b_frames="keep") as opened:
                for _ in decode(opened.track, list(opened.samples())):
                    pass
        finally:
            slowest = max(slowest, time.monotonic() - begin)

    total = {"read": 0, "errors": 0, "crashed": 0}
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(sources):
            share = -(-options.mutants // len(sources))
            counts = mutants(data, share, options.seed + number, Path(folder) / "v.mp4", read)
            total = {name: count + counts[name] for name, count in total.items()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{total}, slowest {slowest:.2f} s, peak of this process {peak} MiB")
    return int(slowest > _SECONDS)


if __name__ == "__main__":
    sys.exit(main())
