"""The bench for real workers, as fixtures."""

from tests.bench import bench, either_bench, make_bench, producer, speech

__all__ = ["bench", "either_bench", "make_bench", "producer", "speech"]
