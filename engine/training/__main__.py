"""``python -m engine.training OUT_DIR``: train the bundled model and measure it."""

import argparse
from pathlib import Path

from engine.training.run import train

parser = argparse.ArgumentParser(prog="python -m engine.training", description=__doc__)
parser.add_argument("out_dir", type=Path, help="write the Hugging Face directory here")
parser.add_argument("--tokens", type=int, default=18_000_000, help="tokens to train on")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--device", default="auto", help="cpu, cuda, or auto")
parser.add_argument("--checkpoint", type=Path, default=Path("build/training/checkpoint.pt"))
arguments = parser.parse_args()
train(**vars(arguments))
