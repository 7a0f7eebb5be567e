from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures" / "parity"
