help:
