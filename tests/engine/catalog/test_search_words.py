"""Search for words in ten thousand generated documents: what is found is what a scan of their words finds."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from chunkmill import Chunk, LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.chunk import ComponentDescriptor

DOCUMENTS, SEGMENTS = 10_000, 4
TEXT = "/notes:text"
ODD = [
    *("the", "a", "RAIN", "rain", "raining", "Fög", "fog", "fog.", "être", "x-ray", "No.7", "3.5", "robot's"),
    *("дождь", "Дождь", "йод", "λόγος", "雨", "naïve", "under_score", "42"),
]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCäéñ0123456789"
SEPARATORS = [" ", "  ", ", ", "\t", "\n", " - ", "\u00a0"]


def generated() -> list[str]:
    """Documents of words that are rare and frequent, with separators of many kinds between them."""
    random = np.random.default_rng(11)
    words = [*ODD, *("".join(random.choice(list(LETTERS), random.integers(1, 9))) for _ in range(3000)), "z" * 300]
    ranks = np.minimum(random.zipf(1.3, 100_000) - 1, 10**6) % len(words)
    lengths = random.integers(0, 12, DOCUMENTS)
    ends = np.cumsum(lengths)
    between = random.choice(SEPARATORS, ends[-1], p=[0.6, 0.05, 0.1, 0.05, 0.1, 0.05, 0.05])
    return [
        "".join(words[rank] + gap for rank, gap in zip(ranks[end - n : end], between[end - n : end], strict=True))
        for n, end in zip(lengths, ends, strict=True)
    ]


def plain(text: str) -> str:
    """A text without case and the accents of Latin letters, whose no-break spaces are spaces."""
    return "".join(
        base if (base := unicodedata.normalize("NFD", char)[0]).isascii() else char
        for char in text.lower().replace("\u00a0", " ")
    )


def of(text: str, tokenizer: str) -> set[str]:
    """The words of a text."""
    if tokenizer == "raw":
        return {plain(text)}
    return set(map(plain, re.findall(r"[^\W_]+" if tokenizer == "simple" else r"[^ \t\n\f\r]+", text)))


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> tuple[DatasetEntry, list[str]]:
    folder, texts = tmp_path_factory.mktemp("words"), generated()
    dataset = CatalogClient(str(folder / "lake")).create_dataset("notes")
    rows = DOCUMENTS // SEGMENTS
    for number in range(SEGMENTS):
        cells = pa.array([[text] for text in texts[number * rows : (number + 1) * rows]])
        chunk = Chunk.build("/notes", {"t": pa.array(range(rows))}, [(ComponentDescriptor("text"), cells)])
        path = folder / f"{number}.rrd"
        LazyChunkStream.from_iter([chunk]).write_rrd(
            path, application_id="t", recording_id=str(number), executor="inline"
        )
        dataset.register(str(path)).wait()
    return dataset, texts


@pytest.mark.parametrize("tokenizer", ["simple", "whitespace", "raw"])
@pytest.mark.heavy
def test_words_are_found_in_exactly_the_documents_that_have_them(
    documents: tuple[DatasetEntry, list[str]], tokenizer: str
) -> None:
    dataset, texts = documents
    dataset.create_fts_search_index(column=TEXT, time_index="t", base_tokenizer=tokenizer)
    having: defaultdict[str, set[int]] = defaultdict(set)
    for number, text in enumerate(texts):
        for word in of(text, tokenizer):
            having[word].add(number)
    some = [texts[i] for i in np.random.default_rng(3).integers(0, DOCUMENTS, 20)]
    total = 0
    for query in [*ODD, "z" * 300, "fog rain", "nowhere", *some, *(text.upper() for text in some[:3])]:
        found = dataset.search_fts(query, TEXT).to_pydict()
        numbers = [
            int(segment) * (DOCUMENTS // SEGMENTS) + t
            for segment, t in zip(found["rerun_segment_id"], found["t"], strict=True)
        ]
        wanted = set().union(*(having[word] for word in of(query, tokenizer)))
        assert set(numbers) == wanted, query
        assert len(numbers) == len(wanted)
        assert found["instance"] == [texts[number] for number in numbers]
        assert found["_score"] == sorted(found["_score"], reverse=True)
        total += len(numbers)
    assert total > (20 if tokenizer == "raw" else 50_000)
