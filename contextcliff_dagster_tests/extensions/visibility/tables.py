"""Rows of the experiment `visibility` in the tables of the core's tests."""

from __future__ import annotations

LINES = {
    "visibility run": "visibility run --model reference-short",
    "visibility grid": "visibility grid toy --model reference-short",
    "visibility prepare": "visibility prepare leaf s.csv",
}
NOT_RUN = {
    "visibility prepare nomad nomad2018-predict-transparent-conductors.zip": "needs Kaggle's file; "
    "test_prepare.py has such",
    "visibility prepare jigsaw jigsaw-toxic-comment-classification-challenge.zip --max-samples "
    "20000": "likewise",
    "visibility prepare leaf leaf-classification.zip": "likewise",
    "visibility prepare forest forest-cover-type-prediction.zip --float32": "likewise",
    "visibility prepare housing playground-series-s3e1.zip": "likewise",
    "visibility run --benchmark toy --num-steps 5": "needs a key; test_quick_start.py runs it on a "
    "model that is none",
    "visibility run --benchmark nomad --num-steps 5 --show-task --show-metric": "likewise",
    "visibility run --benchmark jigsaw": "likewise",
    "visibility run --benchmark toy-flat": "likewise",
    "visibility grid --benchmark toy --dry-run": "likewise",
    "visibility grid --benchmark toy --traces traces": "likewise",
    "visibility grid --benchmark nomad --traces traces": "likewise",
    "visibility prepare nomad nomad2018-predict-transparent-conductors.zip --float32": "needs "
    "Kaggle's file; test_quick_start.py has such",
    "visibility prepare leaf leaf-classification.zip --float32": "likewise",
    "visibility prepare jigsaw jigsaw-toxic-comment-classification-challenge.zip": "likewise",
    "profile visibility-local": "needs a model, and minutes of two cores",
    "profile visibility-local-free": "likewise",
}
MORE = {
    "visibility grid toy --model my-model": "--num-steps 1",
    "visibility grid --benchmark digits --benchmark friedman --runs 144 --model my-model": (
        "--num-steps 1 --seeds 1"
    ),
    "visibility grid toy --levels task=hidden,placebo,shown --levels base=last,best --seeds 10 "
    "--model my-model": "--num-steps 1 --seeds 2",
}
