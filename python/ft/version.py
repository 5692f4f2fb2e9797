"""The version, by itself: building a wheel reads it without the library."""
VERSION = "0.5.0"
