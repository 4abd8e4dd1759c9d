"""The look of the report: nothing is loaded from anywhere."""

__all__ = ["STYLE"]

STYLE = """<style>
:root { color-scheme: light; }
body { margin: 0; background: #fafaf8; color: #222; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 30px; margin: 0 0 8px; }
h2 { font-size: 22px; margin: 48px 0 8px; padding-top: 12px; border-top: 2px solid #222; }
h3 { font-size: 16px; margin: 24px 0 4px; }
p { max-width: 820px; margin: 8px 0; }
img { display: block; max-width: 100%; margin: 16px 0; background: #fff; border: 1px solid #e5e5e5; }
table { border-collapse: collapse; margin: 8px 0 16px; font-size: 14px; background: #fff; width: 100%; }
th, td { padding: 5px 10px; border-bottom: 1px solid #e9e9e6; text-align: left; vertical-align: top; }
th { font-weight: 600; color: #555; background: #f2f2ee; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
td.remark { color: #555; font-size: 13px; max-width: 420px; }
.faint { color: #888; }
.badge { border-radius: 9px; padding: 1px 9px; font-size: 12px; white-space: nowrap; }
.good { background: #dff0df; color: #1d5c1d; }
.bad { background: #f8e0d8; color: #8a2c0a; }
.none { background: #ececec; color: #555; }
.quick { background: #fff3cd; border-left: 4px solid #c08a1e; padding: 8px 12px; }
a { color: #1f5fa8; }
code { background: #f0f0ec; padding: 1px 5px; border-radius: 4px; }
</style>"""
