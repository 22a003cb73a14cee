//! `group`.

use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, status -> Text, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group)]
struct GroupWithoutValue {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group =)]
struct GroupWithoutValueAfterTheSign {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = "50")]
struct GroupAsText {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = -50)]
struct GroupAsNegativeNumber {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 0)]
struct GroupOfZero {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 1)]
struct GroupOfOne {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 1001)]
struct GroupTooLarge {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group(50u32))]
struct GroupWithSuffix {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group[50])]
struct GroupInBrackets {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group())]
struct GroupOfAnEmptyList {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group(optimistic, 50))]
struct GroupWithWordFirst {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group(50, 3))]
struct GroupWithNumberForAWord {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group(50, optimist))]
struct GroupWithUnknownWord {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group(50, optimistic, optimistic))]
struct GroupWithWordTwice {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 50, optimistic)]
struct GroupWithWordOutside {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group(50 optimistic))]
struct GroupWithMissingComma {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 50 rows)]
struct GroupWithJunkAfterTheNumber {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group(50) optimistic)]
struct GroupWithJunkAfterTheList {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 50, group(20))]
struct GroupTwice {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 50, lease = "60s")]
struct GroupAndLease {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = automatic)]
struct GroupWithUnknownSize {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = "auto")]
struct GroupWithQuotedSize {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group(optimistic, auto))]
struct GroupWithSizeLast {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = auto(50))]
struct GroupWithSizeOfAuto {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 50, auto)]
struct GroupWithAutoOutside {
    id: i64,
    amount_cents: i64,
}

fn main() {
    // The rest of the user's code is not accused.
    let _ = (group_without_value_queue::try_count, GroupWithoutValue::queue_state());
    let _ = (group_without_value_after_the_sign_queue::try_count, GroupWithoutValueAfterTheSign::queue_state());
    let _ = (group_as_text_queue::try_count, GroupAsText::queue_state());
    let _ = (group_as_negative_number_queue::try_count, GroupAsNegativeNumber::queue_state());
    let _ = (group_of_zero_queue::try_count, GroupOfZero::queue_state());
    let _ = (group_of_one_queue::try_count, GroupOfOne::queue_state());
    let _ = (group_too_large_queue::try_count, GroupTooLarge::queue_state());
    let _ = (group_with_suffix_queue::try_count, GroupWithSuffix::queue_state());
    let _ = (group_in_brackets_queue::try_count, GroupInBrackets::queue_state());
    let _ = (group_of_an_empty_list_queue::try_count, GroupOfAnEmptyList::queue_state());
    let _ = (group_with_word_first_queue::try_count, GroupWithWordFirst::queue_state());
    let _ = (group_with_number_for_a_word_queue::try_count, GroupWithNumberForAWord::queue_state());
    let _ = (group_with_unknown_word_queue::try_count, GroupWithUnknownWord::queue_state());
    let _ = (group_with_word_twice_queue::try_count, GroupWithWordTwice::queue_state());
    let _ = (group_with_word_outside_queue::try_count, GroupWithWordOutside::queue_state());
    let _ = (group_with_missing_comma_queue::try_count, GroupWithMissingComma::queue_state());
    let _ = (group_with_junk_after_the_number_queue::try_count, GroupWithJunkAfterTheNumber::queue_state());
    let _ = (group_with_junk_after_the_list_queue::try_count, GroupWithJunkAfterTheList::queue_state());
    let _ = (group_twice_queue::try_count, GroupTwice::queue_state());
    let _ = (group_and_lease_queue::try_count, GroupAndLease::queue_state());
    let _ = (group_with_unknown_size_queue::try_count, GroupWithUnknownSize::queue_state());
    let _ = (group_with_quoted_size_queue::try_count, GroupWithQuotedSize::queue_state());
    let _ = (group_with_size_last_queue::try_count, GroupWithSizeLast::queue_state());
    let _ = (group_with_size_of_auto_queue::try_count, GroupWithSizeOfAuto::queue_state());
    let _ = (group_with_auto_outside_queue::try_count, GroupWithAutoOutside::queue_state());
}
