# Made of the table in __init__.py: python -m tests.run house stubs
from .reader import Rosbag2Reader as Rosbag2Reader
from .reader import Rosbag2Source as Rosbag2Source
from .recording import Rosbag2Recording as Rosbag2Recording

__all__: list[str]
