"""Lessons that run: each number on the page is computed as it is told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Lesson:
    """One line of the contents. Its files are those of the folder `name`, in the order of their names."""

    number: int
    name: str
    title: str
    sentence: str

    @property
    def page(self) -> str:
        """The page's file name, without its ending: 01-block."""
        return f"{self.number:02}-{self.name}"


LESSONS = (
    Lesson(
        0,
        "notation",
        "Notation and words",
        "From a list of numbers to surprisal: all that the others take for granted.",
    ),
    Lesson(1, "block", "The block", "A norm, a part, an addition, twice: the unit that every model here stacks."),
    Lesson(2, "attention", "Attention", "Each token asks, every earlier one offers, and weights decide who is heard."),
    Lesson(3, "positions", "Positions", "Attention alone can't tell who came first; five ways of telling it."),
    Lesson(4, "gpt", "A whole GPT and the three families", "From token numbers to a score for every next token."),
    Lesson(5, "counting", "Counting", "Every parameter by name, and why honest counts of one model differ."),
    Lesson(6, "experts", "Mixture of experts", "Many feed-forward networks, of which a token meets a few."),
    Lesson(7, "budget", "Compute, memory, money", "From a config.json to bytes, operations, hours and a bill."),
    Lesson(8, "gradients", "Backpropagation through a block", "The slope of every part, by hand."),
    Lesson(9, "training", "Training a GPT on text", "What moves the weights, what can go wrong, and how one sees it."),
    Lesson(10, "generation", "Generation", "From scores to text, one token at a time, without doing work twice."),
    Lesson(
        11,
        "auditing",
        "Auditing a paper's numbers",
        "Which matrices, which convention, which shape: a figure held to its code.",
    ),
)
