"""What people reported of loading and saving elsewhere, on the shared checkpoints: F12, F17 to F22, F35 and F38.

B batch, T tokens, S source tokens, V vocabulary.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import plainformer as pf
from plainformer.checkpoint.exporting import export
from plainformer.cli import main
from plainformer.faults import PlainformerError
from plainformer.states import State
from plainformer.text import Tokenizer

CLOSE = {"rtol": 0, "atol": 1e-3}
HELD = ("gpt2-tiny", "gpt2-tiny-old-names", "llama-tiny", "llama-tied", "t5-tiny", "bert-tiny", "coin", "chain")


@torch.no_grad()
def last(folder: Path, text: str) -> torch.Tensor:
    return pf.load(folder)(torch.tensor([list(text.encode())]))[0, -1]


@pytest.mark.parametrize("name", ["gpt2-tiny", "gpt2-tiny-old-names", "llama-tiny", "llama-tied"])
def test_f18_to_f20_logits_and_greedy_ids(name: str, field: Path, expected: dict[str, Any]) -> None:
    """F18: names without a prefix, stored masks, square matrices. F19: pairs, heads, scaling. F20: a tied head."""
    told, folder = expected[name], field / "ckpt" / name
    row_V = last(folder, told["prompt"])
    torch.testing.assert_close(row_V[:6], torch.tensor(told["last_row_first6"]), **CLOSE)
    top = row_V.topk(3)
    assert top.indices.tolist() == [token for token, _ in told["last_row_top3"]]
    torch.testing.assert_close(top.values, torch.tensor([value for _, value in told["last_row_top3"]]), **CLOSE)
    for key, n_new in (("greedy5", 5), ("greedy8", 8)):
        if key in told:
            rows = pf.generate(pf.load(folder), [list(told["prompt"].encode())], n_new, temperature=0.0)
            assert rows.new == [told[key]]
    if "prompt59" in told:
        want = torch.tensor(told["prompt59_last_row_first6"])
        torch.testing.assert_close(last(folder, told["prompt59"])[:6], want, **CLOSE)


@pytest.mark.parametrize(
    "name, file",
    [
        ("llama-missing-shard", "model-00002-of-00002.safetensors"),
        ("llama-cut-short", "model.safetensors"),
    ],
)
def test_f20_what_is_missing_or_cut_is_named_before_any_output(
    name: str, file: str, field: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PlainformerError, match=file):
        pf.load(field / "ckpt" / name)
    assert main(["generate", str(field / "ckpt" / name), "--prompt", "a"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert file in said.err
    assert main(["size", str(field / "ckpt" / name)]) == 0


@torch.no_grad()
def test_f21_t5_with_pads_and_with_a_cache(field: Path, expected: dict[str, Any]) -> None:
    told, model = expected["t5-tiny"], pf.load(field / "ckpt" / "t5-tiny")
    source_BS, tokens_BT = torch.tensor([told["encoder_ids"]]), torch.tensor([told["decoder_ids"]])
    padded_BS, n_real = torch.cat((source_BS, torch.zeros(1, 3, dtype=torch.int64)), 1), [source_BS.shape[1]]
    for memory in (model.encode(source_BS), model.encode(padded_BS, n_real)):
        logits_BTV = model(tokens_BT, memory=memory)
        torch.testing.assert_close(logits_BTV[0, -1, :6], torch.tensor(told["last_row_first6"]), **CLOSE)
        for cached in (True, False):
            rows_BT, state = torch.zeros(1, 1, dtype=torch.int64), State(1, capacity=20)
            for _ in range(12):
                new_BT = rows_BT[:, state.lengths[0] :] if cached else rows_BT
                told_once = None if cached and state.memory else memory
                logits_BTV = model(new_BT, state if cached else None, memory=told_once)
                rows_BT = torch.cat((rows_BT, logits_BTV[:, -1:].argmax(-1)), 1)
            assert rows_BT[0, 1:].tolist() == told["greedy_from_0"]


@torch.no_grad()
def test_f22_padding_changes_nothing_in_bert(field: Path, expected: dict[str, Any]) -> None:
    told, model = expected["bert-tiny"], pf.load(field / "ckpt" / "bert-tiny")
    alone_BT = torch.tensor([told["ids"]])
    padded_BT = torch.cat((alone_BT, torch.zeros(1, 5, dtype=torch.int64)), 1)
    alone_BTV, padded_BTV = model(alone_BT), model(padded_BT, n_new=[alone_BT.shape[1]])
    torch.testing.assert_close(alone_BTV[0, 3, :6], torch.tensor(told["row3_first6"]), **CLOSE)
    assert alone_BTV[0, 3].topk(3).indices.tolist() == [token for token, _ in told["row3_top3"]]
    assert (padded_BTV[:, : alone_BT.shape[1]] - alone_BTV).abs().max() < 1e-5
    assert (model(padded_BT)[:, : alone_BT.shape[1]] - alone_BTV).abs().max() > 1, "heeded, it would be seen"


def test_f12_f17_f38_coin_and_chain_speak_through_the_command_line(
    field: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """coin has 8 of the 256 bytes: its tokenizer loads, and draws by a seed are drawn again by it."""

    def said(*words: str) -> list[str]:
        asked = ["generate", str(field / "ckpt" / "coin"), "--prompt", "S", "--max-new-tokens", "40", "--json", *words]
        assert main(asked) == 0
        return [row["text"] for row in json.loads(capsys.readouterr().out)["rows"]]

    seven = [said("--seed", "7", "--samples", "4") for _ in range(2)]
    assert seven[0] == seven[1] != said("--seed", "8", "--samples", "4")
    assert len(set(seven[0])) > 1
    assert {letter for text in seven[0] for letter in text} == set("Sabcd")
    assert main(["generate", str(field / "ckpt" / "coin"), "--prompt", "xyz"]) == 2
    assert "U+0078" in capsys.readouterr().err
    marker = Tokenizer.load(field / "ckpt" / "chain").encode("<|endoftext|>").tolist()
    assert marker == list(b"<|endoftext|>")


@pytest.mark.parametrize("name", HELD)
def test_f35_out_and_in_again_is_the_same(name: str, field: Path, tmp_path: Path) -> None:
    """Bits, names, config and tokenizer; in shards too, whatever the folder had."""
    folder = field / "ckpt" / name
    first = pf.load(folder)
    for to, shard_bytes in (("whole", 10**9), ("shards", 20_000)):
        export(first, tmp_path / to, like=folder, shard_bytes=shard_bytes)
        again = pf.load(tmp_path / to)
        assert again.spec == first.spec
        assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
        held = [
            {n: t for f in at.glob("*.safetensors") for n, t in load_file(f).items()} for at in (folder, tmp_path / to)
        ]
        assert held[0].keys() == held[1].keys()
        assert all(torch.equal(held[0][key], held[1][key]) for key in held[0])
        for file in ("config.json", "tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json"):
            if (folder / file).is_file():
                assert (folder / file).read_bytes() == (tmp_path / to / file).read_bytes()
        shutil.rmtree(tmp_path / to)
