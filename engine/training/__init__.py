"""Samples for training, out of recordings: a plan of each epoch, readers, and datasets of PyTorch.

The names below are loaded when they are first used. Only the datasets and the loader need torch.
"""

from ..lazy_names import lazy_names

_HOMES = {
    ".datasets": "IterableSamples Loader MapSamples collated loader",
    ".fields": "Field FixedRateSampling ImageDecoder NumericDecoder RowSampling TextDecoder VideoFrameDecoder",
    ".frames": "samples_frame samples_table",
    ".job": "Mixture PassFigures TrainingJob",
    ".plan": "BlockShuffle NoShuffle SampleShuffle ShuffleStrategy",
    ".samples": "SampleIndex SampleReader",
    ".source": "DataSource",
    ".spec": "SampleSpec",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
