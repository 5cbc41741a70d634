// Listing: the entries of a directory, packed: a listing of a million names must not cost much more
// than the names.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

namespace cofferdam::overlay {

struct ListedEntry {
  std::string name;
  mode_t type = 0;  // S_IFMT bits
  std::uint64_t shown_inode = 0;
  std::uint64_t offset = 0;  // after it the next entry is looked for; filled by sort()
};

class Listing final {
 public:
  void add(const ListedEntry& entry);
  void clear() { *this = Listing(); }
  // Gives offsets (positive, made from the names) and puts the entries into their order.
  void sort();
  // The first entry whose offset is above `offset`.
  std::size_t after(std::uint64_t offset) const;

  std::size_t size() const { return places_.size(); }
  ListedEntry operator[](std::size_t at) const;
  // Memory that is held.
  std::size_t bytes() const {
    return places_.empty() ? 0 : names_.capacity() + places_.capacity() * sizeof(Place);
  }

 private:
  struct Place {
    std::uint64_t name = 0;  // where it begins in names_
    std::uint64_t shown_inode = 0;
    std::uint64_t offset = 0;
    mode_t type = 0;
  };
  std::string names_;  // each ends with NUL
  std::vector<Place> places_;
};

}  // namespace cofferdam::overlay
