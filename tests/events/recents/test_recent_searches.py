"""Recent searches: the list, its limits, the off switch, merge, archive and personal data, on the site and the fast
path."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.events.models import ArchivedSearch, RecentSearch, SearchHistory
from apps.events.recents import archive, history, owners, personal_data
from apps.events.recents.owners import Owner, account_owner
from apps.kernel import clock
from apps.kernel.outbox.models import OutboxMessage
from apps.kernel.scheduler import facade as scheduler
from apps.kernel.scheduler import picker
from apps.kernel.scheduler.models import ScheduledTask, TaskRun
from apps.orders.privacy.retention import kinds
from tests.support.api_client import Api
from tests.support.events.recent_reads import browser_cookies
from tests.support.kernel.scheduled_tasks import execute_due
from tests.support.orders.sale import SAME_ORIGIN

pytestmark = pytest.mark.django_db
PATH = "/search/recents"


@pytest.fixture
def ann(db: None) -> User:
    return User.objects.create_user("ann@example.org", email="ann@example.org", password="of course not")


@pytest.fixture
def browser() -> Owner:
    return browser_cookies()[0]


def texts(owner: Owner) -> list[str]:
    return list(history.read(owner).searches)


def search(owner: Owner, *words: str) -> None:
    for text in words:
        history.record(owner, history.clean(text))


def test_the_last_ten_are_kept_newest_first_and_none_twice(browser: Owner) -> None:
    search(browser, *(f"act {number}" for number in range(12)), "  Act\x00  5 ", "ÅCT 7")
    assert texts(browser) == [
        "ÅCT 7",
        "Act 5",
        "act 11",
        "act 10",
        "act 9",
        "act 8",
        "act 7",
        "act 6",
        "act 4",
        "act 3",
    ]
    assert RecentSearch.objects.count() == 10
    search(browser, "ACT 3")
    assert texts(browser)[0] == "ACT 3"
    assert len(texts(browser)) == 10


@pytest.mark.parametrize("wrong", [None, 5, "", "  \x00 ", "x" * 101, "half \ud800"])
def test_a_text_that_is_no_search_is_refused(wrong: Any, ann: User) -> None:
    api = Api()
    assert api.post(PATH, {"q": wrong}).json()["type"] == "invalid"
    assert not SearchHistory.objects.exists()


def test_a_long_folded_text_is_saved(browser: Owner) -> None:
    search(browser, "\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}" * 100)
    assert len(texts(browser)) == 1


def test_one_is_deleted_then_all_and_what_is_archived_too(ann: User) -> None:
    owner = account_owner(ann.pk)
    search(owner, "jazz", "Opera", "ballet")
    row = SearchHistory.objects.get()
    for text in ("OPERA", "choir"):
        ArchivedSearch.objects.create(history=row, text=text, searched_at=clock.now())
    history.delete(owner, "opera")
    assert (texts(owner), ArchivedSearch.objects.get().text) == (["ballet", "jazz"], "choir")
    history.delete(owner, "never searched")
    history.clear(owner)
    assert (texts(owner), ArchivedSearch.objects.exists()) == ([], False)


def test_nothing_is_saved_while_saving_is_off_and_the_choice_stays(browser: Owner) -> None:
    search(browser, "jazz")
    history.switch(browser, is_on=False)
    assert not history.record(browser, "opera").is_on
    assert history.read(browser) == history.Recents((), is_on=False)
    assert not RecentSearch.objects.exists()
    history.switch(browser, is_on=True)
    search(browser, "ballet")
    assert texts(browser) == ["ballet"]


def test_a_change_commits_with_its_message_which_names_neither_owner_nor_search(ann: User) -> None:
    owner = account_owner(ann.pk)
    search(owner, "jazz")
    row, message = SearchHistory.objects.get(), OutboxMessage.objects.get(topic=history.CHANGED)
    assert message.body == {"history": row.pk, "key": owner.redis_key}
    assert str(ann.pk) not in owner.redis_key.split("{")[0]
    assert "account" not in owner.redis_key


def test_a_log_in_moves_the_browsers_searches_to_the_account(ann: User) -> None:
    browser, cookies = browser_cookies()
    account = account_owner(ann.pk)
    search(account, "old", "both")
    search(browser, *(f"act {number}" for number in range(7)), "BOTH")
    client = Client(headers=SAME_ORIGIN)
    client.cookies.load(cookies)
    client.post("/accounts/log-in", {"username": ann.username, "password": "of course not"})
    assert texts(account) == ["BOTH", *(f"act {number}" for number in range(6, -1, -1)), "old"]
    assert texts(browser) == []
    assert not SearchHistory.objects.filter(owner=browser.name).exists()
    search(account, "newer")
    assert texts(account)[:2] == ["newer", "BOTH"]


def test_a_merge_keeps_the_newest_ten_and_each_ones_choice(ann: User) -> None:
    account, other = account_owner(ann.pk), User.objects.create_user("bob@example.org")
    guest, quiet, late = (browser_cookies()[0] for _ in range(3))
    search(account, *(f"own {number}" for number in range(8)))
    search(guest, *(f"guest {number}" for number in range(8)))
    assert history.merge(guest, ann.pk)
    assert texts(account) == [f"guest {number}" for number in range(7, -1, -1)] + ["own 7", "own 6"]
    assert not history.merge(guest, ann.pk)
    history.switch(quiet, is_on=False)
    assert not history.merge(quiet, ann.pk)
    assert not history.read(quiet).is_on
    history.switch(account_owner(other.pk), is_on=False)
    search(late, "jazz")
    assert history.merge(late, other.pk)
    assert history.read(account_owner(other.pk)) == history.Recents((), is_on=False)
    assert not RecentSearch.objects.filter(text="jazz").exists()


def archive_by_the_scheduler() -> str:
    """Run the task that code has registered, as if its minute had come, and return its result."""
    for _ in range(2):
        scheduler.ensure_registered()
    task = ScheduledTask.objects.get(kind="events.archive_searches")
    ScheduledTask.objects.update(next_run_at=clock.now() - timedelta(minutes=task.runs.count()))
    picker.pick()
    run = TaskRun.objects.get(state="picked")
    execute_due()
    run.refresh_from_db()
    assert run.state == "succeeded", run.error
    return run.result


def test_old_searches_of_accounts_are_archived_those_of_browsers_deleted(ann: User, browser: Owner) -> None:
    account = account_owner(ann.pk)
    for owner in (account, browser):
        search(owner, "old", "new")
    before = SearchHistory.objects.get(owner=account.name)
    now = clock.now()
    RecentSearch.objects.filter(text="old").update(searched_at=now - timedelta(days=archive.LISTED_DAYS, minutes=1))
    due = {kind.name: kind for kind in kinds()}
    archived = due["archived searches"]
    assert archive_by_the_scheduler() == "2 searches"
    assert archive_by_the_scheduler() == "0 searches"
    assert [texts(account), texts(browser)] == [["new"], ["new"]]
    assert [(one.history_id, one.text) for one in ArchivedSearch.objects.all()] == [(before.pk, "old")]
    assert SearchHistory.objects.get(owner=account.name).version == before.version + 1
    exported = personal_data.export_searches([ann.pk])
    assert [one["text"] for one in exported["searches"]] == ["new", "old"]
    assert archived.erase_before(now - timedelta(days=archived.days)) == 0
    ArchivedSearch.objects.update(searched_at=now - timedelta(days=archived.days, minutes=1))
    assert archived.erase_before(now - timedelta(days=archived.days)) == 1


def test_unused_browsers_and_leftovers_of_erased_accounts_are_deleted(ann: User, browser: Owner) -> None:
    used = browser_cookies()[0]
    for owner in (account_owner(ann.pk), browser, used):
        search(owner, "jazz")
    now = clock.now()
    SearchHistory.objects.filter(owner=browser.name).update(changed_at=now - timedelta(days=owners.COOKIE_DAYS + 1))
    User.objects.filter(pk=ann.pk).update(erased_at=now)
    assert archive.delete_unused_histories(now - timedelta(days=owners.COOKIE_DAYS)) == 2
    assert list(SearchHistory.objects.values_list("owner", flat=True)) == [used.name]


def test_searches_are_exported_and_erased_with_the_account(ann: User) -> None:
    from apps.orders.privacy import erasure, export
    from apps.orders.privacy.person import person_of_email

    search(account_owner(ann.pk), "jazz")
    person = person_of_email(ann.username)
    found = export.export_person(person)["recent_searches"]
    assert (found["are_saved"], [one["text"] for one in found["searches"]]) == (True, ["jazz"])
    erasure.erase_person(person)
    assert not SearchHistory.objects.exists()
    assert not RecentSearch.objects.exists()


# --- the API and the page ------------------------------------------------------------------------------------------


def test_a_browser_gets_its_cookie_with_the_first_search_and_nothing_before() -> None:
    api = Api()
    assert api.get(PATH).json() == {"is_on": True, "searches": []}
    assert api.delete(PATH).json() == {"is_on": True, "searches": []}
    assert not api.client.cookies
    response = api.post(PATH, {"q": " Jazz  night "}, **SAME_ORIGIN)
    assert response.json() == {"is_on": True, "searches": [{"q": "Jazz night"}]}
    assert response.headers["Cache-Control"] == "private, no-store"
    morsel = response.cookies[owners.COOKIE]
    assert morsel["httponly"]
    assert morsel["samesite"] == "Lax"
    api.post(PATH, {"q": "opera"}, **SAME_ORIGIN)
    assert api.delete(f"{PATH}?q=JAZZ+night", **SAME_ORIGIN).json()["searches"] == [{"q": "opera"}]
    assert api.delete(PATH, **SAME_ORIGIN).json()["searches"] == []
    assert api.call("PATCH", PATH, {"is_on": False}, **SAME_ORIGIN).json() == {"is_on": False, "searches": []}
    assert api.post(PATH, {"q": "ballet"}, **SAME_ORIGIN).json() == {"is_on": False, "searches": []}
    assert SearchHistory.objects.count() == 1


@pytest.mark.parametrize(
    ("method", "body"),
    [("POST", {}), ("POST", []), ("POST", {"q": "jazz", "x": 1}), ("PATCH", {"is_on": "no"}), ("PATCH", {"is_on": 0})],
)
def test_a_body_that_says_something_else_is_refused(method: str, body: Any) -> None:
    response = Api().call(method, PATH, body)
    assert (response.status_code, response.json()["type"]) == (422, "invalid")


def test_another_site_can_neither_save_a_search_nor_set_an_identity() -> None:
    other_site = {"origin": "https://elsewhere.example", "sec_fetch_site": "cross-site"}
    api = Api()
    assert not api.post(PATH, {"q": "jazz"}, **other_site).cookies
    browser, cookies = browser_cookies()
    api.client.cookies.load(cookies)
    assert api.post(PATH, {"q": "jazz"}, **other_site).json()["type"] == "cross-origin"
    assert api.client.get("/search?q=jazz", headers={"sec-fetch-site": "cross-site"}).status_code == 302
    assert not SearchHistory.objects.exists()
    assert texts(browser) == []


def test_the_page_works_without_scripts() -> None:
    client = Client(headers=SAME_ORIGIN)
    response = client.get("/search?q=Jazz+%26+more&city=Wien&when=&page=3")
    assert (response.status_code, response.headers["Location"]) == (302, "/?q=Jazz+%26+more&city=Wien")
    assert "no-store" in response.headers["Cache-Control"]
    client.get("/search?q=opera")
    client.get("/search?q=opera+prefetched", headers={"sec-purpose": "prefetch"})
    page = client.get("/searches/").content.decode()
    assert page.index("opera</a>") < page.index('href="/?q=Jazz%20%26%20more"')
    client.post("/searches/", {"act": "delete", "q": "OPERA"})
    assert "opera" not in client.get("/searches/").content.decode()
    client.post("/searches/", {"act": "off"})
    assert "Your searches are not saved." in client.get("/searches/").content.decode()
    client.get("/search?q=ballet")
    client.post("/searches/", {"act": "on"})
    assert "No searches are saved." in client.get("/searches/").content.decode()
    assert client.post("/searches/", {"act": "all"}).status_code == 422
    assert client.get("/search").headers["Location"] == "/"
