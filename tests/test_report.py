"""Figures, tables and pictures: right, safe, and the same bytes each time."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from plainformer.conventions import CONVENTIONS, count
from plainformer.cost import Cost
from plainformer.ledger import Ledger
from plainformer.presets import presets
from plainformer.report import figures, svg
from plainformer.report.sheet import PARTS, Subject, by_part, facts, flat

NASTY = [
    "<script>alert(1)</script>",
    "a & b \"c\" 'd'",
    "\x00\x1b[31m\x7f\x85",
    "\ud800\uffff",
    "]]>",
    "عربي 中 🐕",
    "",
]
ALL_PICTURES = {
    "bars": lambda text: svg.bars(text, {text: 3, "other": 4}),
    "stacked": lambda text: svg.stacked(text, {text: {text: 1, "other": 2}, "second": {"other": 5}}),
    "line_chart": lambda text: svg.line_chart({text: [(0, 1.5), (1, 0.5)], "other": [(0.5, 1)]}, text, text, text),
    "heat_maps": lambda text: svg.heat_maps([(text, [[1, 0], [0.3, 0.7]])], text, [text, "b"], ["a", text]),
}


def shown(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("text")]


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("name", ALL_PICTURES)
def test_a_picture_shows_any_text_as_letters(name: str, text: str) -> None:
    picture = ALL_PICTURES[name](text)
    root = ElementTree.fromstring(picture.encode("utf-8"))
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
        *("svg", "title", "style", "rect", "text", "path", "circle")
    }
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", picture)


@pytest.mark.parametrize("name", ALL_PICTURES)
def test_a_picture_is_the_same_bytes_in_every_process(name: str) -> None:
    code = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import test_report as t"
    code += f"; sys.stdout.write(t.ALL_PICTURES[{name!r}]('x'))"
    drawn = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert drawn == {ALL_PICTURES[name]("x").encode()}


@pytest.mark.parametrize("name", ALL_PICTURES)
def test_a_picture_suits_light_and_dark_pages(name: str) -> None:
    style = ALL_PICTURES[name]("x").partition("<style>")[2].partition("</style>")[0]
    light, dark = (set(re.findall(r"--\w+(?=:)", half)) for half in style.split("@media(prefers-color-scheme:dark)"))
    assert light == dark >= {"--ink", "--paper", "--c"}


def test_bars_are_as_long_as_their_numbers() -> None:
    root = ElementTree.fromstring(svg.bars("t", {"a": 30, "none": 0, "b": 10}))
    widths = [float(box.get("width", 0)) for box in root.iter() if "f " in (box.get("class") or "")]
    assert widths == [360, 120]
    assert "30 (75.00 %)" in shown(svg.bars("t", {"a": 30, "b": 10}))


def test_stacked_bars_are_as_long_as_each_other() -> None:
    picture = svg.stacked("t", {"a": {"x": 1, "y": 3}, "b": {"y": 70, "z": 30}, "empty": {}})
    boxes = [box for box in ElementTree.fromstring(picture).iter() if box.get("height") == "18"]
    sums: dict[str, float] = {}
    for box in boxes:
        sums[box.get("y", "")] = sums.get(box.get("y", ""), 0) + float(box.get("width", 0))
    assert list(sums.values()) == [460, 460]
    assert shown(picture)[-1] == "0"


def test_a_part_keeps_its_colour_when_another_is_absent() -> None:
    def kind(values: dict[str, int]) -> str:
        root = ElementTree.fromstring(svg.bars("t", values))
        return [box.get("class", "") for box in root.iter() if box.get("height") == "18"][-1]

    assert kind({"a": 1, "b": 2}) == kind({"a": 0, "b": 2}) == "f c1"


def test_a_line_breaks_where_a_point_is_not_finite() -> None:
    nan, inf = float("nan"), float("inf")
    picture = svg.line_chart(
        {"a": [(0, 1), (1, 2), (2, nan), (3, inf), (4, 1), (5, 2), (6, nan), (7, 3)]}, "t", "x", "y"
    )
    root = ElementTree.fromstring(picture)
    assert len([path for path in root.iter() if (path.get("class") or "").startswith("l ")]) == 2
    assert len([dot for dot in root.iter() if dot.tag.endswith("circle")]) == 1
    assert "nan" not in picture.lower().replace("<title>", "")


@pytest.mark.parametrize("points", [[], [(5, 2)], [(0, 1), (1, 1)], [(0, 0), (1e9, 1e-9)], [(3, -2), (3, 8)]])
def test_any_points_make_a_chart_within_its_frame(points: list[tuple[float, float]]) -> None:
    root = ElementTree.fromstring(svg.line_chart({"a": points}, "t", "x", "y"))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for path in root.iter():
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", path.get("d") or "")]
        assert all(0 <= n <= max(width, height) for n in numbers)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.7, 4.2), (-3, 3), (1e-6, 2e-6), (0, 123456), (5, 5)])
def test_ticks_are_few_round_and_inside(low: float, high: float) -> None:
    found = svg.ticks(low, high)
    assert 1 <= len(found) <= 6
    assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in found)
    assert all(len(svg.tick_label(tick)) <= 9 for tick in found)


def test_a_map_draws_each_weight_where_it_stands() -> None:
    root = ElementTree.fromstring(svg.heat_maps([("m", [[1, 0], [0.25, 0.75]])], "t", ["p", "q"], ["r", "s"], cell=10))
    cells = [cell for cell in root.iter() if cell.get("fill-opacity")]
    first_x, first_y = float(cells[0].get("x", 0)), float(cells[0].get("y", 0))
    places = {
        (float(cell.get("x", 0)) - first_x, float(cell.get("y", 0)) - first_y): cell.get("fill-opacity")
        for cell in cells
    }
    assert places == {(0, 0): "1", (0, 10): "0.25", (10, 10): "0.75"}


# --- figures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0, "B", "0 B"),
        (999, "B", "999 B"),
        (1000, "B", "1.00 kB"),
        (999_499, "B", "999 kB"),
        (999_500, "B", "1.00 MB"),
        (248_879_616, "B", "249 MB"),
        (1_991_036_928, "B", "1.99 GB"),
        (62_219_904, "B", "62.2 MB"),
        (891_977_334_784, "FLOPs", "892 GFLOPs"),
        (3.15e23, "FLOPs", "315 ZFLOPs"),
    ],
)
def test_three_digits_and_a_prefix(value: float, unit: str, said: str) -> None:
    assert figures.short(value, unit) == said


@pytest.mark.parametrize(
    ("count", "said"), [(27_328, "27.3k"), (124_439_808, "124M"), (8_030_261_248, "8.03B"), (671_026_404_352, "671B")]
)
def test_sizes_are_called_as_people_call_them(count: int, said: str) -> None:
    assert figures.label(count) == said


def test_a_share_is_never_said_to_be_nothing_when_it_is_something() -> None:
    said = [figures.percent(part, 123_689_472) for part in (0, 1, 38_400, 38_633_472, 123_689_472)]
    assert said == ["0.00 %", "< 0.001 %", "0.031 %", "31.23 %", "100.00 %"]
    assert figures.percent(0, 0) == "0.00 %"


def test_a_bar_is_as_long_as_its_share() -> None:
    assert figures.bar(1, 4) == "████"
    assert figures.bar(0.5, 4) == "██"
    assert figures.bar(1 / 32, 4) == "▏"
    assert figures.bar(0, 4) == ""
    assert figures.bar(0.5, 4, plain=True) == "##"


# --- the sheet --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("convention", [None, "all", *CONVENTIONS])
@pytest.mark.parametrize("preset", ["gpt2", "mixtral-8x7b", "bert-base", "t5-v1_1-base"])
def test_the_parts_sum_to_the_total(preset: str, convention: str | None) -> None:
    spec = presets[preset]
    said = facts(Subject(preset, spec, "family"), Cost.of(spec), convention=convention)["parameters"]
    assert tuple(said["by_part"]) == PARTS
    assert sum(said["by_part"].values()) == said["total"]
    expected = count(spec, "tensors" if convention in (None, "all") else convention).total
    assert said["total"] == expected


def test_the_three_active_counts() -> None:
    spec = presets["deepseek-v3"]
    said = facts(Subject("deepseek-v3", spec, "deepseek"), Cost.of(spec))["parameters"]
    assert said["active"] == 37_552_282_624
    assert said["active_without_input_table"] == 36_625_603_584
    assert said["active_without_tables"] == 35_698_924_544
    tied = facts(Subject("gpt2", presets["gpt2"], "gpt2"), Cost.of(presets["gpt2"]))["parameters"]
    assert tied["active"] == tied["active_without_input_table"] == tied["total"]
    assert tied["active_without_tables"] == tied["total"] - 38_597_376


def test_non_embedding_leaves_out_the_table_and_an_untied_head_with_its_bias() -> None:
    spec = presets["t5-v1_1-base"]
    assert facts(Subject("t5", spec, "t5"), Cost.of(spec))["parameters"]["non_embedding"] == 198_229_248
    assert (
        facts(Subject("g", presets["gpt2"], "g"), Cost.of(presets["gpt2"]))["parameters"]["non_embedding"] == 85_842_432
    )


def test_by_part_forgets_no_kind() -> None:
    for preset in presets:
        rows = Ledger.of(presets[preset]).rows
        assert sum(by_part(rows).values()) == sum(row.count for row in rows)


def test_adapters_are_no_part_of_the_head() -> None:
    counted = count(presets["gpt2"], "lora")
    assert by_part(counted.kept)["other"] == 351_744
    assert by_part(counted.kept)["head"] == 0


def test_flat_names_each_figure_by_its_path() -> None:
    assert flat({"a": 1, "b": {"c": {"d": 2}, "e": None}, "notes": ["x"]}) == {"a": 1, "b.c.d": 2, "b.e": None}


def test_blocks_are_drawn_only_where_the_stream_can_hold_them() -> None:
    from plainformer.report.tables import draw_sheet, draws_blocks

    latin = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    assert not draws_blocks(latin)
    subject = Subject("gpt2", presets["gpt2"], "gpt2")
    cost = Cost.of(subject.spec)
    draw_sheet(latin, subject, facts(subject, cost), cost)
    latin.flush()
    assert b"#########" in latin.buffer.getvalue()  # type: ignore[attr-defined]
