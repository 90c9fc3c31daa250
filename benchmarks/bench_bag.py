"""Bags of ROS 1 to columns against rosbags, which decodes message by message, in one process.

Medians of one run on two cores, and their ratio:

"""
