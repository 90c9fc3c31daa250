"""Damage videos and read each; every one is read, or is an error with its place, within ten seconds.

Half of them are decoded, too; the others are read as recordings, in one mode or the other.

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

from chunkmill import Mp4Reader
from chunkmill.engine.errors import ReadError, UnsupportedError
from chunkmill.engine.storage.positional import open_positional
from chunkmill.engine.video import decode, demultiplex
from video_files import CODECS, edited, mutants, video

_SECONDS = 10.0


def main() -> int:
    """Run it; 0 where nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sources = [video(codec) for codec in CODECS]
    sources += [video("h264", b_frames=True), video("h264", container_options={"movflags": "frag_keyframe+empty_moov"})]
    sources += [video("h264", tracks=2, audio=True), edited(video("h264", 15, gop=5), (200, 3584))]
    sources += [video("h264", container="mov"), video("hevc", container="matroska"), video("vp9", container="webm")]
    sources += [video("h264", b_frames=True, container="matroska", container_options={"live": "1"})]
    slowest, count = 0.0, 0
    placeless: list[str] = []

    def read(path: Path) -> None:
        nonlocal slowest, count
        begin = time.monotonic()
        count += 1
        try:
            if count % 2:
                mode = "stream" if count % 4 == 1 else "asset"
                Mp4Reader(path, mode=mode).stream().to_chunks(executor="inline")
                return
            with open_positional(str(path)) as file, demultiplex(file, b_frames="keep") as opened:
                for _ in decode(opened.track, list(opened.samples())):
                    pass
        except ReadError as error:
            if count % 2 and (not error.path or (error.offset is None and not isinstance(error, UnsupportedError))):
                placeless.append(str(error))
            raise
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
    for text in placeless[:5]:
        print(f"without a place: {text}")
    return int(slowest > _SECONDS or bool(placeless) or total["crashed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
