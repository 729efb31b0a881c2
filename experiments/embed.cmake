# Writes OUT, C++ that holds the texts of FILES (parts of pages, see page.h):
#   cmake -DOUT=page_parts.cpp -DFILES="a.html;b.css" -P embed.cmake
set(text "// Made by embed.cmake.\n#include <string_view>\n\nnamespace coppice {\n\n")
string(APPEND text "struct PagePart {\n  std::string_view file, text;\n};\n")
string(APPEND text "extern const PagePart kPageParts[] = {\n")
set(count 0)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} part)
  string(APPEND text "{\"${name}\", R\"coppice(${part})coppice\"},\n")
  math(EXPR count "${count} + 1")
endforeach()
string(APPEND text "};\nextern const size_t kPagePartCount = ${count};\n\n}  // namespace coppice\n")
file(WRITE ${OUT} "${text}")
