//! Every name that a user can reach is in `tests/public_names.txt`: a new one is a decision.
//!
//! A name is what a path of public modules leads to: a type, a function, a constant, a re-export. What is hidden from the
//! documentation is no part of it.
//!
//! To a new one that is wanted: add its line. To one for this workspace's other crates alone: `src/internal.rs`.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, UseTree, Visibility};

/// At most so many: who adds one may have to take another away.
const MOST: usize = 95;

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("doc") && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "hidden")
    })
}

/// The file of the module `name` of a module whose own submodules lie in `folder`.
fn file_of(folder: &Path, name: &str) -> PathBuf {
    let [alone, with_folder] = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
    if alone.exists() { alone } else { with_folder }
}

/// The names that a use declaration gives.
fn given(tree: &UseTree, names: &mut Vec<String>) {
    match tree {
        UseTree::Path(path) => given(&path.tree, names),
        UseTree::Name(name) => names.push(name.ident.to_string()),
        UseTree::Rename(rename) => names.push(rename.rename.to_string()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| given(tree, names)),
        UseTree::Glob(_) => panic!("a glob may give any name: name them"),
    }
}

fn collect(items: &[Item], folder: &Path, path: &str, found: &mut BTreeSet<String>) {
    for item in items {
        let (attributes, visibility, names) = match item {
            Item::Mod(module) => {
                if is_public(&module.vis) && !is_hidden(&module.attrs) {
                    let (name, below) = (module.ident.to_string(), folder.join(module.ident.to_string()));
                    let path = format!("{path}{name}::");
                    match &module.content {
                        Some((_, items)) => collect(items, &below, &path, found),
                        None => {
                            let text = fs::read_to_string(file_of(folder, &name)).unwrap();
                            collect(&syn::parse_file(&text).unwrap().items, &below, &path, found);
                        }
                    }
                }
                continue;
            }
            Item::Use(used) => {
                let mut names = Vec::new();
                if is_public(&used.vis) {
                    given(&used.tree, &mut names);
                }
                (&used.attrs, &used.vis, names)
            }
            Item::Struct(item) => (&item.attrs, &item.vis, vec![item.ident.to_string()]),
            Item::Enum(item) => (&item.attrs, &item.vis, vec![item.ident.to_string()]),
            Item::Union(item) => (&item.attrs, &item.vis, vec![item.ident.to_string()]),
            Item::Trait(item) => (&item.attrs, &item.vis, vec![item.ident.to_string()]),
            Item::Fn(item) => (&item.attrs, &item.vis, vec![item.sig.ident.to_string()]),
            Item::Const(item) => (&item.attrs, &item.vis, vec![item.ident.to_string()]),
            Item::Static(item) => (&item.attrs, &item.vis, vec![item.ident.to_string()]),
            Item::Type(item) => (&item.attrs, &item.vis, vec![item.ident.to_string()]),
            _ => continue,
        };
        if is_public(visibility) && !is_hidden(attributes) {
            found.extend(names.iter().map(|name| format!("{path}{name}")));
        }
    }
}

#[test]
fn public_names_are_those_of_the_list() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("src/lib.rs")).unwrap();
    let mut found = BTreeSet::new();
    collect(&syn::parse_file(&text).unwrap().items, &root.join("src"), "", &mut found);
    let list = fs::read_to_string(root.join("tests/public_names.txt")).unwrap();
    let listed: BTreeSet<String> = list.lines().map(str::to_owned).collect();
    let (new, gone): (Vec<_>, Vec<_>) = (found.difference(&listed).collect(), listed.difference(&found).collect());
    assert!(new.is_empty() && gone.is_empty(), "not in tests/public_names.txt: {new:#?}\nonly there: {gone:#?}");
    assert!(list.lines().is_sorted(), "the list is sorted");
    assert!(found.len() <= MOST, "{} public names, at most {MOST}", found.len());
}
