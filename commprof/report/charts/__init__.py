"""The parts of the HTML report: each module turns one piece of the view dict into what a template or a script shows.

Nothing here measures or judges. A part is plain data: text for Jinja, or columns that go to the browser as JSON.
"""
