"""``chunkmill mcp``: the tools by which an agent reads a lake, over the Model Context Protocol.

Every tool reads. Names are of entries of the catalog, so nothing outside the lake can be named. Answers are bounded in
rows and bytes, and say where they were cut.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from ..errors import MissingExtraError, UsageError, extra_command
from .catalogs import _LAKE, _opened
from .complaints import reported
from .options import DEBUG
from .start import leave_out_what_nothing_needs

if TYPE_CHECKING:
    import pyarrow as pa
    from mcp.server import MCPServer

    from ..catalog import CatalogClient, DatasetEntry

_ABOUT_CHANNELS: Final = re.compile(r":Mcap(Channel|Schema):")
_MOST_POINTS: Final = 20_000
"""Points of a plot: more do not show on its thousand pixels."""
_ABOUT: Final = (
    "A lake of robot recordings. A dataset holds segments, one for each recording, with columns such as "
    "'/entity:Archetype:component' along indexes (timelines); a table holds rows. Begin with list_entries and describe."
    " Values of components are lists. SQL is DataFusion's, read-only; quote names in double quotes."
)


@dataclass(frozen=True)
class LakeTools:
    """What an agent can ask of a lake. Each method is a tool; its docstring tells the agent how to use it.

    ``most_rows`` and ``most_bytes`` bound one answer.
    """

    client: CatalogClient
    most_rows: int
    most_bytes: int

    def list_entries(self) -> dict[str, Any]:
        """List the datasets and tables of the lake, with the number of segments or rows of each."""
        datasets = [
            {"name": name, "kind": "dataset", "segments": len(self.client.get_dataset(name).segment_ids())}
            for name in self.client.dataset_names()
        ]
        tables = [
            {"name": name, "kind": "table", "rows": self.client.get_table(name).reader().count()}
            for name in self.client.table_names()
        ]
        return {"entries": [*datasets, *tables]}

    def describe(self, name: str) -> dict[str, Any]:
        """Describe a dataset or table: its columns and their types; of a dataset also its indexes and their ranges.

        Args:
            name: The name of the entry, as list_entries gives it.
        """
        if name in self.client.table_names():
            schema = self.client.get_table(name).reader().schema()
            return {"name": name, "kind": "table", "columns": {field.name: str(field.type) for field in schema}}
        dataset = self.client.get_dataset(name)
        schema, types = dataset.schema(), dataset.arrow_schema()
        segments = dataset.segment_table().to_arrow_table()
        return {
            "name": name,
            "kind": "dataset",
            "segments": len(segments),
            "indexes": {column.name: _range(segments, column.name) for column in schema.index_columns()},
            "columns": {column.name: str(types.field(column.name).type) for column in schema.component_columns()},
            "segment_columns": segments.column_names,
        }

    def segments(self, dataset: str, where: str = "", limit: int = 50) -> dict[str, Any]:
        """List segments of a dataset with their layers, sizes, properties and the range of each index.

        Args:
            dataset: The name of the dataset.
            where: A condition in SQL on columns of the segment table, such as "rerun_size_bytes" > 1000000.
            limit: At most so many segments.
        """
        frame = self.client.get_dataset(dataset).segment_table()
        frame = frame.filter(where) if where else frame
        return self._rows(_streamed(frame), limit)

    def rows(
        self,
        dataset: str,
        index: str,
        contents: list[str] | None = None,
        columns: list[str] | None = None,
        segments: list[str] | None = None,
        where: str = "",
        fill_latest: bool = False,
        limit: int = 100,
    ) -> dict[str, Any]:
        """Read rows of a dataset along an index: one for each index value of each segment.

        Args:
            dataset: The name of the dataset.
            index: A timeline, as describe gives it.
            contents: Entities to read, such as "/imu/**"; all by default, which can be much.
            columns: The columns of components to give; by default all but those about the channels of MCAP files.
            segments: The ids of segments to read; all by default.
            where: A condition in SQL on the columns.
            fill_latest: Fill what a row lacks with the latest value before.
            limit: At most so many rows.
        """
        view: Any = self.client.get_dataset(dataset)
        view = view.filter_segments(segments) if segments is not None else view
        view = view.filter_contents(contents) if contents is not None else view
        frame = view.reader(index=index, fill_latest_at=fill_latest)
        frame = frame.filter(where) if where else frame
        names = frame.schema().names
        components = [name for name in names if ":" in name and not _ABOUT_CHANNELS.search(name)]
        wanted = ["rerun_segment_id", index, *(components if columns is None else columns)]
        missing = [name for name in wanted if name not in names]
        if missing:
            raise UsageError(f"there is no column {missing[0]!r}", hint="The tool 'describe' lists them.")
        return self._rows(_streamed(frame.select(*(f'"{name}"' for name in wanted))), limit)

    def sql(self, statement: str, limit: int = 100) -> dict[str, Any]:
        """Run a query in SQL (of DataFusion) over tables and datasets of the lake. It cannot write.

        A dataset's name gives its segments; reader('NAME', index => 'INDEX', contents => '/entity/**') gives its rows.

        Args:
            statement: One SELECT statement.
            limit: At most so many rows.
        """
        return self._rows(_streamed(self.client.ctx.sql(statement)), limit)

    def plot(self, dataset: str, segment: str, column: str, index: str, select: str = ".") -> bytes:
        """Plot numbers of one column of a segment along an index, as a PNG.

        Args:
            dataset: The name of the dataset.
            segment: The id of the segment.
            column: The column, such as "/imu:Imu:message".
            index: A timeline.
            select: A selector of a number within each value, such as ".linear_acceleration.x".
        """
        return _drawn(self.client.get_dataset(dataset), segment, column, index, select)

    def _rows(self, batches: Iterable[pa.RecordBatch], limit: int) -> dict[str, Any]:
        """Rows as JSON, with what was cut."""
        rows: list[dict[str, Any]] = []
        size, most = 0, max(0, min(limit, self.most_rows))
        for batch in batches:
            for at in range(len(batch)):
                if len(rows) == most:
                    return {"rows": rows, "cut": f"there are more than {most:,} rows; ask for fewer, or aggregate"}
                row = {name: _short(batch.column(i)[at]) for i, name in enumerate(batch.schema.names)}
                size += len(json.dumps(row))
                if size > self.most_bytes:
                    return {"rows": rows, "cut": f"the answer has {self.most_bytes:,} bytes; ask for fewer columns"}
                rows.append(row)
        return {"rows": rows}


TOOLS: Final = ("list_entries", "describe", "segments", "rows", "sql", "plot")

_MOST_ITEMS: Final = 64
_MOST_TEXT: Final = 2_000


def _short(value: pa.Scalar) -> Any:
    """A value as JSON whose bytes are counted, and whose long lists and texts are cut and say so."""
    import pyarrow as pa

    from .query_display import json_of

    kind = value.type
    if value.is_valid and pa.types.is_struct(kind):
        return {name: _short(item) for name, item in value.items()}
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if value.is_valid and is_list:
        if pa.types.is_uint8(kind.value_type):
            return f"{len(value.values):,} bytes"
        cut = [_short(item) for item in value.values[:_MOST_ITEMS]]
        more = len(value.values) - len(cut)
        return [*cut, f"… {more:,} more"] if more else cut
    if value.is_valid and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        return f"{len(value.as_py()):,} bytes"
    plain = json_of(value)
    if isinstance(plain, str) and len(plain) > _MOST_TEXT:
        return f"{plain[:_MOST_TEXT]}… {len(plain) - _MOST_TEXT:,} more characters"
    return plain


def _streamed(frame: Any) -> Iterable[pa.RecordBatch]:
    for batch in frame.execute_stream():
        yield batch.to_pyarrow()


def _range(segments: pa.Table, index: str) -> dict[str, Any]:
    """The least start and the greatest end of an index over all segments."""
    import pyarrow.compute as pc

    from .query_display import json_of

    ends = {}
    for name, of in (("start", pc.min), ("end", pc.max)):
        column = f"{index}:{name}"
        ends[name] = json_of(of(segments[column])) if column in segments.column_names else None
    return ends


def _drawn(dataset: DatasetEntry, segment: str, column: str, index: str, select: str) -> bytes:
    """A picture of a column's numbers. Raises ``UsageError`` where they are no numbers."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from ...lenses import Selector

    entity = column.partition(":")[0]
    rows = dataset.filter_segments(segment).filter_contents(entity).reader(index=index)
    if column not in rows.schema().names:
        raise UsageError(
            f"dataset {dataset.name!r} has no column {column!r}", hint="The tool 'describe' lists its columns."
        )
    table = pa.table(rows.select(f'"{index}"', f'"{column}"'))
    lists = table[column].combine_chunks()
    values = Selector(select).execute(lists.flatten())
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise UsageError(f"{select!r} of {column!r} gives {values.type}, not numbers", hint="Select one of its fields.")
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    times = table[index].take(pa.array(np.repeat(np.arange(len(table)), lengths)))
    x, y = _thinned(times.to_numpy(), values.to_numpy(zero_copy_only=False))
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.add_subplot(title=f"{segment}: {column} {'' if select == '.' else select}", xlabel=index)
    axes.plot(x, y, linewidth=0.8)
    out = io.BytesIO()
    FigureCanvasAgg(figure).print_png(out)
    return out.getvalue()


def _thinned(x: Any, y: Any) -> tuple[Any, Any]:
    """The points that show: of many, the least and the greatest of each run of points."""
    import numpy as np

    run = len(y) // (_MOST_POINTS // 2)
    if run < 2:
        return x, y
    whole = len(y) // run * run
    rows = y[:whole].reshape(-1, run)
    rows = np.where(np.isnan(rows), np.nanmean(y), rows) if y.dtype.kind == "f" else rows
    first = np.arange(0, whole, run)
    at = np.unique(np.concatenate([first + rows.argmin(1), first + rows.argmax(1), np.arange(whole, len(y))]))
    return x[at], y[at]


def lake_server(tools: LakeTools) -> MCPServer:
    """Return the server of a lake's tools. Raises ``MissingExtraError``."""
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver import Image
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise MissingExtraError(f"{error.name} is not installed", hint=extra_command("mcp")) from error

    def tool(call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def answer(*args: Any, **kwargs: Any) -> Any:
            try:
                result = call(*args, **kwargs)
            except Exception as error:
                raise ToolError(f"{type(error).__name__}: {error}") from error
            return Image(data=result, format="png") if isinstance(result, bytes) else json.dumps(result)

        answer.__annotations__ = {**call.__annotations__, "return": Image if call.__name__ == "plot" else str}
        return answer

    server = MCPServer("chunkmill", instructions=_ABOUT, log_level="WARNING")
    annotations = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for name in TOOLS:
        call = getattr(tools, name)
        server.add_tool(tool(call), name=name, annotations=annotations, structured_output=False)
    return server


@click.command()
@_LAKE
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Serve over HTTP on this machine, at /mcp, instead of stdio."
)
@click.option("--max-rows", type=click.IntRange(1), default=1_000, show_default=True, help="Rows of one answer.")
@click.option(
    "--max-bytes", type=click.IntRange(1_000), default=200_000, show_default=True, help="Bytes of one answer."
)
@DEBUG
def mcp(lake: str, port: int | None, max_rows: int, max_bytes: int, debug: bool) -> None:
    """Serve tools that read LAKE to agents, by the Model Context Protocol.

    An agent starts this command and talks to its standard input and output. It can list, describe, query and plot; it
    cannot write, and it cannot name anything outside LAKE.
    """
    with reported(debug=debug):
        leave_out_what_nothing_needs()
        server = lake_server(LakeTools(_opened(lake), max_rows, max_bytes))
        if port is None:
            server.run("stdio")
        else:
            server.run("streamable-http", port=port)
