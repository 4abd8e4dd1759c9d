"""The collection service: campaigns over HTTP, a database that loses nothing, estimates while messages arrive.

It needs ``pip install 'sstq[service]'``.
"""
