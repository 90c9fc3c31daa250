"""Every answer of Rerun's server about search indexes is ours too, or is one that differs on purpose.

The answers are those of ``../shared/golden/query/search_0.33.1.json``: 14 calls, one after the other, over a recording
that lies near it. What differs is in ``docs/differences.md``.
"""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from chunkmill.engine.catalog import CatalogClient, DatasetEntry, NotFoundError
from places import SHARED

RECORDED = SHARED / "golden" / "query" / "search_0.33.1.json"
RECORDING = SHARED / "golden" / "query" / "rrd" / "search.rrd"

pytestmark = [pytest.mark.wide, pytest.mark.skipif(not RECORDED.exists(), reason="the recorded calls are not at hand")]

VECTOR, NUMBER, TEXT = "/emb:Emb:vec", "/sc:Scalars:scalars", "/txt:TextDocument:text"
QUERY = 5
"""The frame whose vector was looked for."""


def vectors(dataset: DatasetEntry) -> np.ndarray[Any, np.dtype[np.float32]]:
    rows = dataset.reader("frame").sort("frame").to_pydict()[VECTOR]
    return np.array([row[0] for row in rows], np.float32)


def distances(dataset: DatasetEntry) -> Any:
    return dataset.search_vector(vectors(dataset)[QUERY], VECTOR, 3).to_pydict()["_distance"]


def named(frame: Any, name: str) -> str:
    """A column of a frame, as the text of a schema has it."""
    return str(frame.schema().field(name)).replace("pyarrow.Field<", "").rstrip(">")


def scores(dataset: DatasetEntry, words: str) -> list[dict[str, float]]:
    found: list[dict[str, float]] = dataset.search_fts(words, TEXT).select("_score").to_pylist()
    return found


Call = Callable[[DatasetEntry], Any]

CALLS: list[tuple[str, Call, type[Exception] | str | None]] = [
    ("reg", lambda d: d.register(str(RECORDING)).wait(), None),
    ("cols", lambda d: [(field.name, str(field.type)) for field in d.arrow_schema()], None),
    ("create_fts", lambda d: d.create_fts_search_index(column=TEXT, time_index="frame"), None),
    ("create_fts again", lambda d: d.create_fts_search_index(column=TEXT, time_index="frame"), "None"),
    ("create_vec", lambda d: d.create_vector_search_index(column=VECTOR, time_index="frame"), None),
    ("search_vec schema", lambda d: named(d.search_vector(vectors(d)[QUERY], VECTOR, 3), "_distance"), None),
    ("search_vec", lambda d: len(distances(d)), "3"),
    ("search_vec list", lambda d: d.search_vector(vectors(d)[QUERY].tolist(), VECTOR, 2).count(), None),
    ("search wrong dim", lambda d: d.search_vector([1.0, 2.0], VECTOR, 3), ValueError),
    ("search no index", lambda d: d.search_vector([1.0], NUMBER, 3), NotFoundError),
    ("search_fts schema", lambda d: named(d.search_fts("gripper", TEXT), "_score"), None),
    ("search_fts", lambda d: len({row["_score"] for row in scores(d, "gripper")[:4]}), "1"),
    ("search_fts multi", lambda d: len(scores(d, "alpha beta")), None),
    ("search_fts none", lambda d: scores(d, "zebra"), None),
]
"""Each call, how it is made, and what is expected instead of the recorded answer: another one, or a kind of error."""

OTHER_WORDS = {
    "search wrong dim": "the query has 2 numbers, but vectors of /emb:Emb:vec have 32",
    "search no index": "Component path '/sc:Scalars:scalars' not found among the search indexes",
}
"""What our errors say that say something else."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> DatasetEntry:
    return CatalogClient(tmp_path_factory.mktemp("recorded") / "lake").create_dataset("emb")


@pytest.fixture(scope="module")
def answers(dataset: DatasetEntry) -> list[Any]:
    found: list[Any] = []
    for _, call, _ in CALLS:
        try:
            found.append(str(call(dataset)))
        except Exception as error:  # noqa: BLE001 (it is compared)
            found.append(error)
    return found


def recorded() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(RECORDED.read_text())
    return found


def test_every_recorded_call_is_here() -> None:
    assert [row["call"] for row in recorded()] == [name for name, _, _ in CALLS]


@pytest.mark.parametrize("number", range(len(CALLS)), ids=[name for name, _, _ in CALLS])
def test_an_answer_is_the_recorded_one(number: int, answers: list[Any]) -> None:
    name, _, instead = CALLS[number]
    answer, expected = answers[number], recorded()[number]
    if isinstance(instead, type):
        assert isinstance(answer, instead)
        said = getattr(answer, "message", None) or str(answer)
        assert said == OTHER_WORDS.get(name) or (said and said in expected["error"])
    else:
        assert answer == (expected["result"] if instead is None else instead)


def test_an_index_of_cosines_measures_cosines(dataset: DatasetEntry, answers: list[Any]) -> None:
    """There, the distances by an index that says ``metric: cosine`` are squares of Euclidean ones."""
    assert len(answers) == len(CALLS)
    every = vectors(dataset).astype(np.float64)
    query = every[QUERY]
    theirs = [row["_distance"] for row in literal_eval(recorded()[6]["result"])]
    assert np.allclose(np.sort(((every - query) ** 2).sum(axis=1))[:3], theirs, atol=1e-4)
    lengths = np.linalg.norm(every, axis=1)
    cosines = np.sort(1 - every @ query / (lengths * lengths[QUERY]))[:3]
    assert np.allclose(distances(dataset), cosines, atol=1e-5) and not np.allclose(cosines, theirs, atol=1e-2)


def test_words_that_are_frequent_count_for_scores(dataset: DatasetEntry, answers: list[Any]) -> None:
    """There, "the" is left out before the length of a text is taken, so that its score is larger."""
    assert len(answers) == len(CALLS)
    theirs = {row["_score"] for row in literal_eval(recorded()[11]["result"])}
    texts = [row[0].split() for row in dataset.reader("frame").to_pydict()[TEXT] if row]

    def score(frequent: set[str]) -> float:
        lengths = {tuple(text): len([word for word in text if word not in frequent]) for text in texts}
        mean, found = sum(lengths.values()) / len(texts), [text for text in texts if "gripper" in text]
        rarity = np.log(1 + (len(texts) - len(found) + 0.5) / (len(found) + 0.5))
        return float(rarity * 2.2 / (1 + 1.2 * (0.25 + 0.75 * lengths[tuple(found[0])] / mean)))

    assert np.allclose(list(theirs), score({"the"}), atol=1e-4)
    assert np.allclose([row["_score"] for row in scores(dataset, "gripper")], score(set()), rtol=0.02)
    assert len(scores(dataset, "gripper")) == 10
