"""The admin of the search's synonyms."""

from django import forms
from django.contrib import admin

from apps.events.models import Synonym
from apps.events.search.words.vocabulary import words_of
from apps.kernel.admin_lists import DeclaredFiltersMixin

PHRASES_MAX, PHRASE_WORDS_MAX = 20, 3


class SynonymForm(forms.ModelForm):
    class Meta:
        model = Synonym
        fields = ("words", "note")

    def clean_words(self) -> str:
        phrases = [part.strip() for part in self.cleaned_data["words"].split(",") if words_of(part)]
        if not 2 <= len(phrases) <= PHRASES_MAX:
            raise forms.ValidationError(f"Enter 2 to {PHRASES_MAX} words or phrases, separated by commas.")
        if any(len(words_of(phrase)) > PHRASE_WORDS_MAX for phrase in phrases):
            raise forms.ValidationError(f"A phrase has at most {PHRASE_WORDS_MAX} words.")
        return ", ".join(phrases)


@admin.register(Synonym)
class SynonymAdmin(DeclaredFiltersMixin, admin.ModelAdmin):
    form = SynonymForm
    list_display = ("words", "note")
    search_fields = ("words", "note")
