//! Model: the types of fields, as they are written outside of the struct.

use syn::visit_mut::{self, VisitMut};
use syn::{DeriveInput, Generics, Lifetime, Path, Type, parse_quote};

/// Returns a field's type with the struct's name in place of `Self`: a function outside of an impl knows no `Self`.
pub(super) fn without_self(ty: &Type, entity: &DeriveInput) -> Type {
    let mut ty = ty.clone();
    NamedSelf(entity).visit_type_mut(&mut ty);
    ty
}

/// Returns a type with `'static` in place of the struct's lifetimes: a key outlives the row from which it was read.
pub(super) fn endless(ty: &Type, generics: &Generics) -> Type {
    let mut ty = ty.clone();
    EndlessLifetimes(generics).visit_type_mut(&mut ty);
    ty
}

struct NamedSelf<'a>(&'a DeriveInput);

impl VisitMut for NamedSelf<'_> {
    fn visit_path_mut(&mut self, path: &mut Path) {
        if let Some(first) = path.segments.first_mut().filter(|first| first.ident == "Self") {
            let mut entity = self.0.ident.clone();
            entity.set_span(entity.span().located_at(first.ident.span()));
            let (_, generics, _) = self.0.generics.split_for_impl();
            let generics = generics.as_turbofish();
            *first = parse_quote!(#entity #generics);
        }
        visit_mut::visit_path_mut(self, path);
    }
}

struct EndlessLifetimes<'a>(&'a Generics);

impl VisitMut for EndlessLifetimes<'_> {
    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if self.0.lifetimes().any(|parameter| parameter.lifetime == *lifetime) {
            *lifetime = Lifetime::new("'static", lifetime.span());
        }
        visit_mut::visit_lifetime_mut(self, lifetime);
    }
}

#[cfg(test)]
mod tests {
    use quote::ToTokens;

    use super::*;

    #[test]
    fn self_is_the_struct_with_its_own_parameters() {
        let entity: DeriveInput = parse_quote!(
            struct Letter<'a, K> {}
        );
        let ty: Type = parse_quote!((Id<Self>, <Self as Keyed>::Key, [u8; Self::BYTES], other::Self_));
        let expected: Type = parse_quote!((
            Id<Letter::<'a, K>>,
            <Letter::<'a, K> as Keyed>::Key,
            [u8; Letter::<'a, K>::BYTES],
            other::Self_
        ));
        let ty = without_self(&ty, &entity);
        assert_eq!(ty.to_token_stream().to_string(), expected.to_token_stream().to_string());
        let endless = endless(&ty, &entity.generics).to_token_stream().to_string();
        assert_eq!(endless, expected.to_token_stream().to_string().replace("'a", "'static"));
    }
}
