"""`visibility`: what an agent that tunes hyper-parameters is shown, and how it then behaves."""

from __future__ import annotations

import click

from contextcliff_dagster.cli.visibility.prepare import prepare


@click.group()
def visibility() -> None:
    """What does an agent do with what it is shown? It tunes hyper-parameters step by step."""


visibility.add_command(prepare)
