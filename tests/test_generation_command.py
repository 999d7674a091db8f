"""`plainformer generate` and `embed` of published folders: encoder-decoders, encoders, chats; as transformers answers.

Folders are made here: tiny random models, tokenizers of a few words.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import numpy as np
import pytest
import tokenizers as library
import torch
import transformers
from safetensors.torch import save_file

from automata import chain, characters, run_folder
from strangers import STRANGERS, VOCAB, made

WORDS = [f"w{i}" for i in range(7, VOCAB)]
CONTROL = ["<pad>", "<s>", "</s>", "<unk>", "<mask>", "<|user|>", "<|end|>"]
TEMPLATE = (
    "{% for m in messages %}<|user|>{{ m['content'] }}<|end|>{% endfor %}{% if add_generation_prompt %}<s>{% endif %}"
)
SOURCE, OTHER = "w9 w12 w7", "w20 w8"
Asked = Callable[..., tuple[int, str, str]]
FAMILIES = STRANGERS | {"albert base": replace(STRANGERS["albert"], name="AlbertModel")}


def tokenizer_into(folder: Path, around: str | None, chat: bool = False) -> Any:
    """A word a token, control tokens around a text as `around` says; also as transformers reads it."""
    vocab = {text: i for i, text in enumerate([*CONTROL, *WORDS])}
    made = library.Tokenizer(library.models.WordLevel(vocab, unk_token="<unk>"))
    made.pre_tokenizer = library.pre_tokenizers.Whitespace()
    made.decoder = library.decoders.Fuse()
    made.add_special_tokens(CONTROL)
    if around:
        special = [(text, vocab[text]) for text in around.split() if text != "$A"]
        made.post_processor = library.processors.TemplateProcessing(single=around, special_tokens=special)
    names = {
        "pad_token": "<pad>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    told = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)
    told.chat_template = TEMPLATE if chat else None
    told.save_pretrained(folder)
    return told


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any, Any]]:
    """(folder, transformers' model, its tokenizer) by name."""
    found = {}
    for name, around in (
        ("bart", "<s> $A </s>"),
        ("t5", "$A </s>"),
        ("marian", "$A </s>"),
        ("bert", "<s> $A </s>"),
        ("bert base", "<s> $A </s>"),
        ("albert base", "<s> $A </s>"),
        ("llama", "<s> $A"),
    ):
        folder, model = tmp_path_factory.mktemp(name.replace(" ", "-")), made(FAMILIES[name]).float()
        if name in ("bart", "t5"):
            told = {"decoder_start_token_id": 2 if name == "bart" else 0, "eos_token_id": 2, "pad_token_id": 0}
            told |= {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True, "min_length": 5}
            told |= {"forced_bos_token_id": 1, "forced_eos_token_id": 2, "no_repeat_ngram_size": 3}
            told = told if name == "bart" else {k: told[k] for k in ("decoder_start_token_id", "eos_token_id")}
            model.generation_config = transformers.GenerationConfig(**({"pad_token_id": 0} | told))
        if name == "marian":  # as its converter writes it
            told = {"decoder_start_token_id": 0, "bad_words_ids": [[0]], "eos_token_id": 2, "forced_eos_token_id": 2}
            told |= {"num_beams": 4, "renormalize_logits": True, "pad_token_id": 0}
            model.generation_config = transformers.GenerationConfig(**told)
        model.save_pretrained(folder)
        found[name] = folder, model, tokenizer_into(folder, around, chat=name == "llama")
    return found


def written(model: Any, tokenizer: Any, text: str, **told: Any) -> list[int]:
    """transformers' new tokens, as its generation_config has them, up to their end."""
    with torch.no_grad():
        row = model.generate(
            **tokenizer(text, return_tensors="pt", return_token_type_ids=False), use_cache=False, **told
        )[0].tolist()
    row = row[1:]
    return row[: row.index(2) + 1] if 2 in row else row


def rows_of(answer: tuple[int, str, str]) -> list[dict[str, Any]]:
    status, out, err = answer
    assert status == 0, err
    rows: list[dict[str, Any]] = json.loads(out)["rows"]
    return rows


# --- encoder-decoders -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bart", "t5", "marian"])
@pytest.mark.parametrize(
    "flags, told", [((), {}), (("--beams", "3"), {"num_beams": 3}), (("--greedy",), {"num_beams": 1})]
)
def test_a_source_is_answered_as_by_transformers_and_its_generation_config(
    name: str, flags: Sequence[str], told: dict[str, Any], folders: Any, ask: Asked
) -> None:
    folder, model, tokenizer = folders[name]
    answer = ask(
        "generate", str(folder), "--source", SOURCE, "--source", OTHER, "--max-new-tokens", "11", "--json", *flags
    )
    told = {"max_new_tokens": 11, "do_sample": False, **told}
    if "num_beams" in told and told["num_beams"] == 1:
        told |= {"early_stopping": None, "length_penalty": None}
    rows = rows_of(answer)
    assert [row["source"] for row in rows] == [SOURCE, OTHER]
    assert [row["tokens"] for row in rows] == [written(model, tokenizer, text, **told) for text in (SOURCE, OTHER)]
    assert ("4 beams, as the folder says" in answer[2]) == (name != "t5" and not flags)
    assert ("score" in rows[0]) == ((name != "t5" and not flags) or "--beams" in flags)


def test_a_text_that_is_begun_is_gone_on_with(folders: Any, ask: Asked) -> None:
    folder, model, tokenizer = folders["t5"]
    rows = rows_of(
        ask("generate", str(folder), "--source", SOURCE, "--prompt", "w8 w9", "--max-new-tokens", "6", "--json")
    )
    begun = torch.tensor([[0, *tokenizer.convert_tokens_to_ids(["w8", "w9"])]])
    assert (
        rows[0]["tokens"]
        == written(model, tokenizer, SOURCE, decoder_input_ids=begun, max_new_tokens=6, do_sample=False)[2:]
    )


def test_beams_give_as_many_texts_as_are_asked_for_best_first(folders: Any, ask: Asked) -> None:
    folder, *_ = folders["t5"]
    flags = ("--source", SOURCE, "--beams", "4", "--samples", "3", "--max-new-tokens", "6")
    rows = rows_of(ask("generate", str(folder), *flags, "--json"))
    assert len({tuple(row["tokens"]) for row in rows}) == 3
    assert sorted((row["score"] for row in rows), reverse=True) == [row["score"] for row in rows]
    assert ask("generate", str(folder), *flags)[1].count("--- sample") == 3


def test_a_drawn_answer_has_its_seed_told(folders: Any, ask: Asked) -> None:
    folder, *_ = folders["t5"]
    said = ("generate", str(folder), "--source", SOURCE, "--temperature", "1", "--max-new-tokens", "8")
    status, out, err = ask(*said)
    seed = err.partition("seed ")[2].partition(" ")[0]
    assert status == 0
    assert ask(*said, "--seed", seed)[1] == out


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_smaller_weights_answer_too(dtype: str, folders: Any, ask: Asked) -> None:
    folder, model, tokenizer = folders["bart"]
    (row,) = rows_of(
        ask("generate", str(folder), "--source", "w9", "--dtype", dtype, "--max-new-tokens", "8", "--json")
    )
    assert row["tokens"][0] == 1, "forced"
    if dtype == "float32":
        assert row["tokens"] == written(model, tokenizer, "w9", max_new_tokens=8, do_sample=False)
    (row,) = rows_of(ask("generate", str(folders["bert"][0]), "--prompt", "<mask>", "--dtype", dtype, "--json"))
    best = row["masks"][0]["best"]
    assert best[0]["probability"] >= best[1]["probability"]


# --- encoders ---------------------------------------------------------------------------------------------------------


def test_masks_are_filled_with_the_likeliest_tokens(folders: Any, ask: Asked) -> None:
    folder, model, tokenizer = folders["bert"]
    prompt = "w9 <mask> w7 <mask>"
    with torch.no_grad():
        p_TV = model(**tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)).logits[0].softmax(-1)
    (row,) = rows_of(ask("generate", str(folder), "--prompt", prompt, "--json"))
    assert [one["place"] for one in row["masks"]] == [2, 4]
    for one in row["masks"]:
        best = p_TV[one["place"]].topk(5)
        assert [answer["token"] for answer in one["best"]] == best.indices.tolist()
        assert [answer["probability"] for answer in one["best"]] == pytest.approx(best.values.tolist(), rel=1e-4)
    _, out, _ = ask("generate", str(folder), "--prompt", prompt, "--top-k", "2")
    assert [line.split()[0] for line in out.splitlines()].count("<mask>") == 2
    assert len(out.splitlines()) == 2 + 2 * 2


def test_a_text_s_vector_is_printed_and_kept(folders: Any, ask: Asked, tmp_path: Path) -> None:
    folder, model, tokenizer = folders["bert base"]
    texts = [SOURCE, OTHER, "w11"]
    told = tokenizer(texts, return_tensors="pt", padding=True, return_token_type_ids=False)
    with torch.no_grad():
        states_NTD, real = model(**told).last_hidden_state, told["attention_mask"][..., None]
    want_ND = ((states_NTD * real).sum(1) / real.sum(1)).numpy()
    status, out, err = ask("embed", str(folder), *texts)
    assert status == 0, err
    np.testing.assert_allclose([[float(x) for x in line.split()] for line in out.splitlines()], want_ND, atol=1e-5)
    rows = rows_of(ask("embed", str(folder), *texts, "--normalize", "--json"))
    lengths = np.linalg.norm(want_ND, axis=1, keepdims=True)
    np.testing.assert_allclose([row["vector"] for row in rows], want_ND / lengths, atol=1e-5)
    (tmp_path / "texts.txt").write_text(f"{OTHER}\nw11\n")
    status, out, _ = ask(
        "embed", str(folder), SOURCE, "--file", str(tmp_path / "texts.txt"), "--npz", str(tmp_path / "v.npz")
    )
    assert (status, out) == (0, "")
    kept = np.load(tmp_path / "v.npz")
    assert kept["texts"].tolist() == texts
    np.testing.assert_allclose(kept["vectors"], want_ND, atol=1e-5)
    _, out, _ = ask("embed", str(folder), SOURCE, "--pool", "first")
    np.testing.assert_allclose([float(x) for x in out.split()], states_NTD[0, 0].numpy(), atol=1e-5)


def test_a_folder_of_sentence_transformers_says_how_it_pools(folders: Any, ask: Asked, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in folders["bert base"][0].iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "1_Pooling").mkdir()
    (folder / "2_Normalize").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        '{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}'
    )
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 4}')
    status, out, err = ask("embed", str(folder), "w9 w12 w7 w8", "--json")
    said = json.loads(out)
    assert status == 0
    assert (said["pool"], said["normalized"], len(said["rows"][0]["tokens"])) == ("first", True, 4)
    assert "6 tokens, only the first 4 are read" in err
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    assert "give --pool" in ask("embed", str(folder), "w9")[2]
    assert ask("embed", str(folder), "w9", "--pool", "mean")[0] == 0


def linked(folder: Path, to: Path) -> Path:
    """The same files in a new folder, where others may be put beside them."""
    to.mkdir()
    for file in folder.iterdir():
        (to / file.name).symlink_to(file)
    return to


def modules(folder: Path, *named: tuple[str, str]) -> None:
    said = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (kind, path) in enumerate(named)]
    (folder / "modules.json").write_text(json.dumps(said))


OLD, NEW = "sentence_transformers.models.", "sentence_transformers.sentence_transformer.modules."


@pytest.mark.parametrize("name", ["bert base", "albert base"])
@pytest.mark.parametrize("form", [OLD, NEW])
def test_a_vector_goes_through_the_modules_of_its_folder(
    name: str, form: str, folders: Any, ask: Asked, tmp_path: Path
) -> None:
    """Pooled, through a dense layer with its curve, made 1 long: in the order that modules.json has."""
    source, model, tokenizer = folders[name]
    folder, width = linked(source, tmp_path / "model"), model.config.hidden_size
    modules(
        folder,
        (f"{OLD}Transformer", ""),
        (f"{form}Pooling", "1_Pooling"),
        (f"{form}Dense", "2_Dense"),
        (f"{form}Normalize", "3_Normalize"),
    )
    pooling = {"pooling_mode_mean_tokens": True} if form is OLD else {"pooling_mode": "mean"}
    for place, said in (
        ("1_Pooling", pooling),
        ("2_Dense", {"in_features": width, "out_features": 5, "bias": True}),
    ):
        (folder / place).mkdir()
        (folder / place / "config.json").write_text(json.dumps(said))
    draw = torch.Generator().manual_seed(3)
    weights = {
        "linear.weight": torch.randn(5, width, generator=draw),
        "linear.bias": torch.randn(5, generator=draw),
    }
    save_file(weights, folder / "2_Dense" / "model.safetensors")
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    prompts = {"prompts": {"query": "w7 "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    told = tokenizer("w7 w9 w12", return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        x_D = model(**told).last_hidden_state[0].mean(0)
        want_E = torch.tanh(weights["linear.weight"] @ x_D + weights["linear.bias"])
    status, out, err = ask("embed", str(folder), "W9 W12", "--json")
    assert status == 0, err
    said = json.loads(out)
    assert (said["pool"], said["normalized"], said["width"]) == ("mean", True, 5)
    np.testing.assert_allclose(said["rows"][0]["vector"], want_E / want_E.norm(), atol=1e-5)
    assert "begins with 'w7 '" in err
    again = tmp_path / "again"
    assert ask("export", str(folder), str(again))[0] == 0
    assert ask("embed", str(again), "W9 W12", "--json") == (0, out, err)


@pytest.mark.parametrize(
    "named, says",
    [
        ((f"{OLD}Transformer", f"{OLD}LSTM"), "is no module that is known here"),
        ((f"{OLD}Transformer", f"{OLD}Dense"), "linear.weight"),
        ((f"{OLD}Transformer", f"{OLD}Pooling"), "is no way of pooling that is known"),
    ],
)
def test_a_module_that_is_not_known_gives_no_vector(
    named: Sequence[str], says: str, folders: Any, ask: Asked, tmp_path: Path
) -> None:
    folder = linked(folders["bert base"][0], tmp_path / "model")
    modules(folder, *((kind, "part" if i else "") for i, kind in enumerate(named)))
    (folder / "part").mkdir()
    (folder / "part" / "config.json").write_text('{"in_features": 24, "out_features": 5, "pooling_mode": "max"}')
    save_file({"other": torch.zeros(1)}, folder / "part" / "model.safetensors")
    status, out, err = ask("embed", str(folder), "w9")
    assert (status, out) == (2, "")
    assert says in err
    modules(folder, (f"{OLD}Transformer", ""), (f"{OLD}Pooling", "../elsewhere"))
    assert "leads out of the folder" in ask("embed", str(folder), "w9")[2]


# --- decoders ---------------------------------------------------------------------------------------------------------


def test_a_prompt_begins_as_its_publisher_has_it(folders: Any, ask: Asked) -> None:
    folder, model, tokenizer = folders["llama"]
    ids = tokenizer(SOURCE, return_tensors="pt").input_ids
    assert ids[0, 0] == 1
    with torch.no_grad():
        want = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=7, do_sample=False, pad_token_id=0
        )
    flags = ("--prompt", SOURCE, "--greedy", "--max-new-tokens", "7", "--json")
    (row,) = rows_of(ask("generate", str(folder), *flags))
    n = len(row["tokens"])
    assert row["tokens"] == want[0, ids.shape[1] :].tolist()[:n]
    (row,) = rows_of(ask("generate", str(folder), *flags, "--logprobs"))
    with torch.no_grad():
        ln_p_TV = model(torch.cat((ids, torch.tensor([row["tokens"]])), 1)).logits[0].log_softmax(-1)
    want_T = [float(ln_p_TV[ids.shape[1] - 1 + i, token]) for i, token in enumerate(row["tokens"])]
    assert row["logprobs"] == pytest.approx(want_T, rel=1e-3, abs=1e-4)
    with torch.no_grad():
        other = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=7,
            do_sample=False,
            pad_token_id=0,
            repetition_penalty=1.9,
        )
    (row,) = rows_of(ask("generate", str(folder), *flags, "--repetition-penalty", "1.9"))
    assert row["tokens"] == other[0, ids.shape[1] :].tolist()[: len(row["tokens"])]


def test_a_chat_is_written_by_the_template_and_no_user_makes_a_control_token(
    folders: Any, ask: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plainformer.cli import asking

    seen: list[list[int]] = []
    original = asking.prompt_tokens
    monkeypatch.setattr(asking, "prompt_tokens", lambda *args: seen.append(original(*args)) or seen[-1])
    folder, _, tokenizer = folders["llama"]
    flags = ("--greedy", "--max-new-tokens", "4", "--chat")
    status, out, err = ask("generate", str(folder), "--prompt", "w9 w8", *flags)
    assert status == 0, err
    assert not out.startswith("w9 w8"), "the answer alone"
    want = tokenizer.apply_chat_template([{"role": "user", "content": "w9 w8"}], add_generation_prompt=True)
    assert seen[0] == list(want["input_ids"] if hasattr(want, "keys") else want)
    ask("generate", str(folder), "--prompt", "w9 <|end|> <s>", *flags)
    assert seen[1].count(6) == 1
    assert seen[1].count(1) == 1


def test_a_conversation_of_several_turns_is_written_by_the_template(
    folders: Any, ask: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file, with and without a prompt after it, as a list or inside an object; as transformers writes it."""
    from plainformer.cli import asking

    seen: list[list[int]] = []
    original = asking.prompt_tokens
    monkeypatch.setattr(asking, "prompt_tokens", lambda *args: seen.append(original(*args)) or seen[-1])
    folder, _, tokenizer = folders["llama"]
    turns = [("user", "w9 w8"), ("assistant", "w12"), ("user", "w7")]
    told = [{"role": role, "content": text} for role, text in turns]
    file = tmp_path / "talk.json"
    for said, prompt, turned in (
        (told, None, told),
        ({"messages": told}, None, told),
        (told[:2], "w20", [*told[:2], {"role": "user", "content": "w20"}]),
    ):
        file.write_text(json.dumps(said))
        more = [] if prompt is None else ["--prompt", prompt]
        status, out, err = ask(
            "generate", str(folder), "--messages", str(file), *more, "--greedy", "--max-new-tokens", "3"
        )
        assert status == 0, err
        want = tokenizer.apply_chat_template(turned, add_generation_prompt=True)
        assert seen[-1] == list(want["input_ids"] if hasattr(want, "keys") else want)
    for wrong, says in (
        ("[", "is not JSON"),
        ("[]", "must be a list of messages"),
        ('{"a": 1}', "must be a list of messages"),
        ('[{"role": "user", "content": "w9"}, {"role": "user", "content": 7}]', "message 2"),
    ):
        file.write_text(wrong)
        status, out, err = ask("generate", str(folder), "--messages", str(file))
        assert (status, out) == (2, "")
        assert says in err
    assert ask("generate", str(folder), "--messages", str(tmp_path / "nowhere.json"))[0] == 2
    file.write_text(json.dumps(told))
    assert "--source" in ask("generate", str(folders["bart"][0]), "--source", "w9", "--messages", str(file))[2]


def test_adapters_stand_for_a_model_on_the_base_that_they_name_or_that_is_given(
    folders: Any, ask: Asked, tmp_path: Path
) -> None:
    """Named by a path, by the last word of a name on the hub beside them, or by --base: as transformers with the
    adapters in its weights. The tokenizer is the base's, unless they bring one."""
    folder, model, tokenizer = folders["llama"]
    base = tmp_path / "small-llama"
    shutil.copytree(folder, base)
    merged = copy.deepcopy(model)
    generator, held = torch.Generator().manual_seed(4), {}
    for name, module in merged.named_modules():
        if name.endswith(("q_proj", "down_proj")):
            a, b = (
                torch.randn(n, generator=generator) * 0.4 for n in ((3, module.in_features), (module.out_features, 3))
            )
            held |= {f"base_model.model.{name}.lora_A.weight": a, f"base_model.model.{name}.lora_B.weight": b}
            with torch.no_grad():
                module.weight += 5 / 3 * (b @ a)
    (tmp_path / "adapters").mkdir()
    save_file(held, tmp_path / "adapters" / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "down_proj"], "bias": "none"}
    ids = torch.tensor([tokenizer("w9 w12")["input_ids"]])
    told = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "eos_token_id": [0, 1, 2, 3, 4, 5, 6]}
    want = merged.generate(ids, attention_mask=torch.ones_like(ids), **told)[0, ids.shape[1] :].tolist()
    plain = model.generate(ids, attention_mask=torch.ones_like(ids), **told)[0, ids.shape[1] :].tolist()
    assert want != plain, "the adapters change nothing"
    said = ("generate", str(tmp_path / "adapters"), "--prompt", "w9 w12", "--greedy", "--max-new-tokens", "8", "--json")
    for named, more in (
        (str(base), ()),
        ("someone/small-llama", ()),
        ("../small-llama", ()),
        (None, ("--base", str(base))),
    ):
        (tmp_path / "adapters" / "adapter_config.json").write_text(
            json.dumps(config | {"base_model_name_or_path": named})
        )
        status, out, err = ask(*said, *more)
        assert status == 0, err
        assert "adapters of" in err
        assert json.loads(out)["rows"][0]["tokens"] == want
    (tmp_path / "adapters" / "adapter_config.json").write_text(
        json.dumps(config | {"base_model_name_or_path": "small-llama"})
    )
    assert ask("export", str(tmp_path / "adapters"), str(tmp_path / "merged"))[0] == 0
    whole = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged").state_dict()
    assert all(torch.allclose(whole[name], t, atol=1e-6) for name, t in merged.state_dict().items())
    assert (tmp_path / "merged" / "tokenizer.json").read_bytes() == (base / "tokenizer.json").read_bytes()
    assert "holds adapters alone" in ask("size", str(tmp_path / "adapters"))[2]
    (tmp_path / "adapters" / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": None}))
    status, out, err = ask(*said)
    assert (status, out) == (2, "")
    assert "base_model_name_or_path = None: is no folder with a config.json here" in err
    status, out, err = ask("generate", str(base), "--prompt", "w9", "--base", str(base))
    assert status == 2
    assert "is for a folder of adapters" in err


def test_past_the_context_a_text_stops_slides_or_is_refused(ask: Asked, tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", chain({0: 1, 1: 2, 2: 0}, n=3, max_seq_len=10), characters("xyz"))
    said = ("generate", run, "--prompt", "xy", "--greedy", "--max-new-tokens", "31")
    assert ask(*said)[1] == "xyzxyzxyzx\n"
    status, out, err = ask(*said, "--past-context", "slide")
    assert (status, out) == (0, "xyz" * 11 + "\n")
    assert "the context holds" not in err
    status, out, err = ask(*said, "--past-context", "refuse")
    assert (status, out) == (2, "")
    assert "must fit the context (10)" in err


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, flags, says",
    [
        ("bart", (), "reads a text before it writes one"),
        ("llama", ("--source", "w9"), "this model has no encoder"),
        ("bart", ("--source", "w9", "--chat", "--prompt", "w9"), "--source"),
        ("bart", ("--source", "w9", "--beams", "0"), "--beams = 0"),
        ("bart", ("--source", "w9", "--beams", "1000000"), "--beams = 1000000: must be at most 1,000"),
        ("llama", ("--prompt", "w9", "--samples", "99999999999"), "--samples = 99999999999: must be at most"),
        ("bart", ("--source", "w9", "--beams", "2", "--samples", "3"), "2 beams find 2 texts at most"),
        ("bart", ("--source", "w9", "--beams", "2", "--temperature", "1"), "--temperature = 1.0: beams draw nothing"),
        ("llama", ("--prompt", "w9", "--repetition-penalty", "0"), "--repetition-penalty = 0.0"),
        ("llama", ("--prompt", "w9", "--length-penalty", "2"), "is for --beams"),
        ("llama", ("--prompt", "w9", "--beams", "1", "--length-penalty", "2"), "is for --beams, of two or more"),
        ("t5", ("--source", "w9", "--length-penalty", "2"), "--length-penalty = 2.0: is for --beams"),
        ("bart", ("--source", "w9", "--length-penalty", "2", "--greedy"), "--length-penalty = 2.0: is for --beams"),
        ("bart", ("--source", "w9", "--json", "--logprobs"), "--logprobs = True: are told with --json"),
        ("llama", ("--prompt", "w9", "--logprobs"), "--logprobs"),
        ("llama", ("--chat",), "needs what the user says"),
        ("bert", ("--prompt", "w9"), "holds no mask: this model fills <mask>"),
        ("bert", ("--prompt", "<mask>", "--beams", "2"), "it fills masks"),
        ("bert", ("--prompt", "<mask>", "--samples", "5"), "--samples = 5: this model is an encoder"),
        ("bert", ("--prompt", "<mask>", "--seed", "0"), "--seed = 0: this model is an encoder"),
        ("bert", ("--prompt", "<mask>", "--temperature", "0"), "--temperature = 0.0: this model is an encoder"),
        ("bert", ("--prompt", "<mask>", "--max-new-tokens", "9"), "--max-new-tokens = 9: this model is an encoder"),
        ("bert", ("--prompt", "<mask>", "--past-context", "slide"), "--past-context = 'slide': this model is"),
        ("bert base", ("--prompt", "<mask>"), "cannot fill masks"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    name: str, flags: Sequence[str], says: str, folders: Any, ask: Asked
) -> None:
    status, out, err = ask("generate", str(folders[name][0]), *flags)
    assert (status, out) == (2, "")
    assert says in err


@pytest.mark.parametrize(
    "flags", [(), ("w9", "--npz", "."), ("w9", "--npz", "v.npz", "--json"), ("w9", "--npz", "v.txt")]
)
def test_embed_refuses_what_cannot_be(flags: Sequence[str], folders: Any, ask: Asked) -> None:
    assert ask("embed", str(folders["bert base"][0]), *flags)[:2] == (2, "")
