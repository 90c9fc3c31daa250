"""Read one HDF5 file with rerun-sdk 0.41 and write it as an RRD: PYTHON hdf5_against_rerun.py IN OUT [OPTIONS].

OPTIONS are a JSON object of arguments of ``stream``; ``index`` is a list of kind, path and unit.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    from rerun.chunk import IndexColumn
    from rerun.experimental import Hdf5Reader

    source, target, *rest = sys.argv[1:]
    options = json.loads(rest[0]) if rest else {}
    if "index" in options:
        kind, path, *unit = options.pop("index")
        options["index_column"] = getattr(IndexColumn, kind)(path, **({"input_unit": unit[0]} if unit else {}))
    stream = Hdf5Reader(source).stream(**options)
    stream.write_rrd(target, application_id="a", recording_id="r")


if __name__ == "__main__":
    main()
