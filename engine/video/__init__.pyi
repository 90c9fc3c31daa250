# Made of the table in __init__.py: python -m tests.run house stubs
from ..storage.positional import open_positional as open_positional
from .bitstream import DETECTORS as DETECTORS
from .bitstream import H265_END as H265_END
from .bitstream import H265_OPEN as H265_OPEN
from .bitstream import H265_SKIPPED as H265_SKIPPED
from .bitstream import IsKeyframe as IsKeyframe
from .bitstream import detect_gop_start as detect_gop_start
from .bitstream import h265_picture as h265_picture
from .bitstream import is_annex_b as is_annex_b
from .bitstream import length_prefixed_to_annex_b as length_prefixed_to_annex_b
from .chunks import asset_chunks as asset_chunks
from .chunks import pack_groups as pack_groups
from .chunks import stream_chunks as stream_chunks
from .coding import BFrames as BFrames
from .coding import Demultiplexed as Demultiplexed
from .coding import FrameOutput as FrameOutput
from .coding import FramePlanes as FramePlanes
from .coding import QUALITY as QUALITY
from .coding import VideoFrame as VideoFrame
from .coding import VideoTrack as VideoTrack
from .coding import decode as decode
from .coding import decode_planes as decode_planes
from .coding import demultiplex as demultiplex
from .coding import encode as encode
from .coding import has_video_extra as has_video_extra
from .coding import mux as mux
from .coding import transcode as transcode
from .mp4 import CODECS as CODECS
from .mp4 import NotPlainError as NotPlainError
from .mp4 import read_boxes as read_boxes
from .mp4 import shown_frames as shown_frames
from .samples import SampleBatch as SampleBatch
from .samples import Ticks as Ticks
from .samples import VideoSample as VideoSample

__all__: list[str]
