"""Text generation on top of the runtime: tokenizer, sessions, sampling, scores, the report."""

from wordline.engine.generate import Generation, check_prompt, generate
from wordline.engine.report import Report, make_report
from wordline.engine.sampling import Sampler, Sampling
from wordline.engine.score import PositionScore, score
from wordline.engine.session import Session, Step, Want, checked_context
from wordline.engine.tokenizer import TextStream, Tokenizer

__all__ = [
    "Generation",
    "PositionScore",
    "Report",
    "Sampler",
    "Sampling",
    "Session",
    "Step",
    "TextStream",
    "Tokenizer",
    "Want",
    "check_prompt",
    "checked_context",
    "generate",
    "make_report",
    "score",
]
