"""Running pipelines: the Spark session, the one stage, parts and their commit; the same inline, without Spark."""
