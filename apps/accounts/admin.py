"""Registers the staff's pages: Django autodiscovers only this file."""

from apps.accounts.staff import admin_pages as admin_pages
