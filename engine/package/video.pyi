# Made of the table in video.py: python -m tests.run house stubs
from .engine.video import BFrames as BFrames
from .engine.video import CODECS as CODECS
from .engine.video import DETECTORS as DETECTORS
from .engine.video import Demultiplexed as Demultiplexed
from .engine.video import FrameOutput as FrameOutput
from .engine.video import FramePlanes as FramePlanes
from .engine.video import H265_END as H265_END
from .engine.video import H265_OPEN as H265_OPEN
from .engine.video import H265_SKIPPED as H265_SKIPPED
from .engine.video import IsKeyframe as IsKeyframe
from .engine.video import NotPlainError as NotPlainError
from .engine.video import QUALITY as QUALITY
from .engine.video import SampleBatch as SampleBatch
from .engine.video import Ticks as Ticks
from .engine.video import VideoFrame as VideoFrame
from .engine.video import VideoSample as VideoSample
from .engine.video import VideoTrack as VideoTrack
from .engine.video import asset_chunks as asset_chunks
from .engine.video import decode as decode
from .engine.video import decode_planes as decode_planes
from .engine.video import demultiplex as demultiplex
from .engine.video import detect_gop_start as detect_gop_start
from .engine.video import encode as encode
from .engine.video import h265_picture as h265_picture
from .engine.video import has_video_extra as has_video_extra
from .engine.video import is_annex_b as is_annex_b
from .engine.video import length_prefixed_to_annex_b as length_prefixed_to_annex_b
from .engine.video import mux as mux
from .engine.video import open_positional as open_positional
from .engine.video import pack_groups as pack_groups
from .engine.video import read_boxes as read_boxes
from .engine.video import shown_frames as shown_frames
from .engine.video import stream_chunks as stream_chunks
from .engine.video import transcode as transcode

__all__: list[str]
