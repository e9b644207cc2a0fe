"""URLs of the events app. The page patterns form the namespace `events`; API patterns have prefixed names."""

from django.urls import path, re_path

from apps.events import api_views, views
from apps.events.announcements import api_views as announcements_api
from apps.events.announcements import views as announcements
from apps.events.discovery import site_files
from apps.events.interest import api_views as interest_api
from apps.events.organizers import views as organizers
from apps.events.recents import api_views as recents_api
from apps.events.recents import views as recents
from apps.events.search import api_views as search_api

root_urls = [
    path("sitemap.xml", site_files.sitemap, name="sitemap"),
    path("robots.txt", site_files.robots, name="robots"),
    path("favicon.ico", site_files.favicon, name="favicon"),
]

page_urls = [
    path("", views.catalog, name="catalog"),
    path("search", recents.search, name="search"),
    path("searches/", recents.recent_searches, name="recent_searches"),
    path("events/<slug:slug>/", views.event, name="event"),
    path("events/<slug:slug>/announcements/", announcements.announcements, name="announcements"),
    path("events/<slug:slug>/plan.json", views.plan, name="plan"),
    path("events/<slug:slug>/poster.svg", views.poster, name="poster"),
    re_path(
        r"^organizers/(?P<slug>[-a-zA-Z0-9_]+)/(?P<kind>terms|privacy|imprint)$",
        organizers.legal_page,
        name="legal_page",
    ),
]

api_urls = [
    path("search", search_api.Search.as_view(), name="events_api_search"),
    path("search/suggestions", search_api.Suggestions.as_view(), name="events_api_suggestions"),
    path("search/recents", recents_api.RecentSearchesView.as_view(), name="events_api_recent_searches"),
    path("events", api_views.EventList.as_view(), name="events_api_events"),
    path("events/<slug:event>", api_views.EventDetail.as_view(), name="events_api_event"),
    path("events/<slug:event>/views", interest_api.EventViews.as_view(), name="events_api_views"),
    path(
        "events/<slug:event>/announcements",
        announcements_api.AnnouncementsView.as_view(),
        name="events_api_announcements",
    ),
    path(
        "events/<slug:event>/announcements/history",
        announcements_api.AnnouncementHistoryView.as_view(),
        name="events_api_announcement_history",
    ),
]
