use queueable::Queueable;

diesel::table! {
    payments (id) {
        id -> BigInt,
        company_id -> BigInt,
        account_id -> BigInt,
        amount -> Double,
    }
}

mod serial_and_limited {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(serial_by = company_id, at_most(3, by = company_id))]
    struct Payment {
        id: i64,
    }
}

mod two_columns {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(serial_by = account_id, fair_by = company_id)]
    struct Payment {
        id: i64,
    }
}

mod two_limits {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(at_most = 3, at_most(10))]
    struct Payment {
        id: i64,
    }
}

mod no_limit {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(at_most(0, by = company_id))]
    struct Payment {
        id: i64,
    }
}

mod limited_per_company {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(at_most(3, per = company_id))]
    struct Payment {
        id: i64,
    }
}

mod exclusive {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(exclusive, at_most(3))]
    struct Payment {
        id: i64,
    }
}

mod aged {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(fair_by = company_id, priority(age = "1h"))]
    struct Payment {
        id: i64,
    }
}

mod several {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(serial_by(company_id, account_id))]
    struct Payment {
        id: i64,
    }
}

mod almost_strict {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(serial_by(company_id, stric))]
    struct Payment {
        id: i64,
    }
}

mod strict_twice {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(serial_by(company_id, strict, strict))]
    struct Payment {
        id: i64,
    }
}

mod strict_alone {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(serial_by(strict))]
    struct Payment {
        id: i64,
    }
}

mod of_the_queue {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(serial_by = status)]
    struct Payment {
        id: i64,
    }
}

mod by_a_number_with_a_fraction {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(serial_by = amount)]
    struct Payment {
        id: i64,
    }
}

mod by_nothing_there {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(fair_by = tenant_id)]
    struct Payment {
        id: i64,
    }
}

mod counted_by_a_number_with_a_fraction {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(report_index = amount)]
    struct Payment {
        id: i64,
    }
}

mod counted_by_the_queue {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(report_index(status))]
    struct Payment {
        id: i64,
    }
}

mod counted_by_nothing_there {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(report_index = tenant_id)]
    struct Payment {
        id: i64,
    }
}

mod counted_by_two {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(report_index(company_id, account_id))]
    struct Payment {
        id: i64,
    }
}

mod counted_by_no_column {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(report_index = 3)]
    struct Payment {
        id: i64,
    }
}

mod strict_and_periodic {
    use super::*;

    #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(serial_by(company_id, strict), periodic)]
    struct Payment {
        id: i64,
    }
}

fn main() {}
