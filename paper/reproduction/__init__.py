"""Every figure and table of the paper again, with each number beside the paper's.

experiment ──▶ jobs (method, seed) ──▶ one result file each ──▶ a section ──▶ its record: tables and pictures
"""
