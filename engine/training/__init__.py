"""Training samples from recordings: a plan of each epoch, readers, and PyTorch datasets.

The names below are loaded when they are first used. Only the datasets and the loader need torch.
"""

from ..lazy_names import lazy_names

_HOMES = {
    ".column_decoders": "ColumnDecoder DecodeRequest FieldBatch IndexValue",
    ".datasets": "IterableSamples Loader MapSamples collated loader",
    ".fields": "Field FixedRateSampling ImageDecoder NumericDecoder RowSampling TextDecoder VideoFrameDecoder",
    ".frames": "samples_frame samples_table",
    ".job": "Mixture PassFigures TrainingJob",
    ".manifest": "Manifest ManifestMeta",
    ".normalisation": "FieldStatistics Normalisation",
    ".plan": "BlockShuffle NoShuffle SampleShuffle ShuffleStrategy",
    ".rerun_datasets": "RerunIterableDataset RerunMapDataset",
    ".samples": "SampleIndex SampleReader SegmentMetadata",
    ".source": "DataSource",
    ".spec": "SampleSpec",
    ".yuv": "PooledBatchCollator Yuv420Collator Yuv420Frame",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
