"""Numbered versions that appear whole, and the one loop in which changes are committed.

The names below are loaded when they are first used.
"""

from ..lazy_names import lazy_names

_HOMES = {
    ".bucket": ("Bucket ObjectInfo reading_object storage_options writing_object"),
    ".copies": "PlacedFile copy_file digest_at files_at folder_and_name",
    ".history": "VERSION_FIELDS VersionPoint author check_tag moved_tag nanoseconds_at number_at without_tag",
    ".http": "HostLimit",
    ".objects": "FoundObject bucket_of find_objects is_one_object",
    ".remote_file": "LARGEST_WINDOW RemoteFile",
    ".uploads": "SMALLEST_PART Upload await_copy clear_uploads copy_object have_same_content remove_object upload_to",
    ".url": "ObjectUrl is_url",
    ".versions": "RESTORE VersionFiles has_files name_of publish unreadable",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
