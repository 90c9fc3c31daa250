# Made of the table in __init__.py: python -m tests.run house stubs
from .bucket import Bucket as Bucket
from .bucket import ObjectInfo as ObjectInfo
from .bucket import reading_object as reading_object
from .bucket import storage_options as storage_options
from .bucket import writing_object as writing_object
from .history import VersionPoint as VersionPoint
from .history import author as author
from .history import check_tag as check_tag
from .history import moved_tag as moved_tag
from .history import nanoseconds_at as nanoseconds_at
from .history import number_at as number_at
from .history import without_tag as without_tag
from .http import HostLimit as HostLimit
from .objects import FoundObject as FoundObject
from .objects import bucket_of as bucket_of
from .objects import find_objects as find_objects
from .objects import is_one_object as is_one_object
from .remote_file import LARGEST_WINDOW as LARGEST_WINDOW
from .remote_file import RemoteFile as RemoteFile
from .uploads import SMALLEST_PART as SMALLEST_PART
from .uploads import Upload as Upload
from .uploads import await_copy as await_copy
from .uploads import clear_uploads as clear_uploads
from .uploads import copy_object as copy_object
from .uploads import have_same_content as have_same_content
from .uploads import remove_object as remove_object
from .uploads import upload_to as upload_to
from .url import ObjectUrl as ObjectUrl
from .url import is_url as is_url
from .versions import RESTORE as RESTORE
from .versions import VersionFiles as VersionFiles
from .versions import has_files as has_files
from .versions import name_of as name_of
from .versions import publish as publish
from .versions import unreadable as unreadable

__all__: list[str]
