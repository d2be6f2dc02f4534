"""Wordings of the instruction for studies that ask for replicates and write none of their own."""

from __future__ import annotations

NEUTRAL_WORDINGS = (
    "{question}",
    "Question: {question}",
    "The question: {question}",
    "My question: {question}",
    "Now the question: {question}",
    "Here is the question: {question}",
    "The question is this: {question}",
    "A question on the text: {question}",
    "The following is asked: {question}",
    "This is what is asked: {question}",
)
"""Each announces the question in at most five words and asks for nothing: no format, no brevity, no
reasoning. The first is the wording of a study without replicates, so that its calls stay paid; the
others are never reworded, because recipes are hashed from them: add at the end."""
