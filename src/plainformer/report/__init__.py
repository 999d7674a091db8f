"""Sheets, tables and pictures for people and machines. Rich is loaded only where a table is drawn."""
