(function(){
"use strict";
var search=document.getElementById("search"),count=document.getElementById("count");
var rows=Array.prototype.slice.call(document.querySelectorAll("tbody tr"));
function filter(){
  var wanted=search.value.toLowerCase(),shown=0;
  rows.forEach(function(row){
    row.hidden=row.getAttribute("data-name").indexOf(wanted)<0;
    if(!row.hidden){shown+=1;}
  });
  count.textContent=shown+(shown===1?" config":" configs");
}
search.addEventListener("input",filter);
document.querySelectorAll("thead th").forEach(function(head){
  var button=document.createElement("button");
  button.type="button";
  button.textContent=head.textContent;
  head.textContent="";
  head.appendChild(button);
  button.addEventListener("click",function(){
    var table=head.closest("table"),body=table.tBodies[0];
    var down=head.getAttribute("aria-sort")==="ascending",at=head.cellIndex;
    table.querySelectorAll("thead th").forEach(function(other){other.removeAttribute("aria-sort");});
    head.setAttribute("aria-sort",down?"descending":"ascending");
    Array.prototype.slice.call(body.rows).sort(function(a,b){
      var x=a.cells[at].getAttribute("data-sort")||a.cells[at].textContent;
      var y=b.cells[at].getAttribute("data-sort")||b.cells[at].textContent;
      return (down?-1:1)*x.localeCompare(y,"en",{numeric:true});
    }).forEach(function(row){body.appendChild(row);});
  });
});
})();
