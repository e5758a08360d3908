//! scratch
use std::time::Instant;
use thunderhead_log::*;
fn rng(x:&mut u64)->u64{*x^=*x<<13;*x^=*x>>7;*x^=*x<<17;*x}
fn main(){
 let live:usize=1<<30; let util:f64=std::env::args().nth(1).map_or(0.3,|s|s.parse().unwrap());
 let batch=std::env::args().nth(2).is_some_and(|s|s=="batch");
 let n=live/156; 
 let mem=(n as f64*142.5/util) as usize + n*125/10;
 let memory=Memory::new(mem).unwrap(); let t=Instant::now(); memory.populate(&mut|_|{}); println!("populate {:?}",t.elapsed());
 let mut log=Log::new(&memory,LogId(1),{let mut o=Options::default(); let f=|n:&str,d:f64|std::env::var(n).map_or(d,|v|v.parse().unwrap()); o.cleaner.tombstone_share_high=f("T",0.4); o.cleaner.free_share_low=f("F",0.5); o.cleaner.compaction=f("C",1.0)>0.0; o.cleaner.segments_per_pass=f("P",8.0) as usize; o},Box::new(NoReplication::default())).unwrap();
 let table=TableId(1); log.create_tablet(TabletRange::whole(table)).unwrap();
 let cleaners=CleanerThreads::start(&log,1,|_|{});
 let key=|i:u64|{let mut k=[b'k';30];k[..8].copy_from_slice(&i.to_le_bytes());k};
 let val=[7u8;100];
 let t=Instant::now();
 for i in 0..n as u64 { while let Err(e)=log.write(table,&key(i),&val){ assert!(e.is_transient(),"{e} at {i}"); log.turn(); } }
 let e=t.elapsed(); println!("fill {} objs {:.2} M/s", n, n as f64/e.as_secs_f64()/1e6);
 let u=log.usage(); println!("{u:?} per obj {:.2} index {:.2}", u.live_bytes as f64/n as f64-130.0, u.index_bytes as f64/n as f64);
 let mut x=88172645463325252u64; 
 let secs=std::env::args().nth(3).map_or(5.0,|s|s.parse().unwrap());
 let t=Instant::now(); let mut ops=0u64; let mut waits=0u64; let mut last=(0.0,0);
 if batch { 
  while t.elapsed().as_secs_f64()<secs { let mut keys=[[0u8;30];64]; for k in &mut keys{*k=key(rng(&mut x)%n as u64);} 
   let puts:Vec<Put>=keys.iter().map(|k|Put{table,key:k,value:&val,condition:Condition::Always}).collect();
   let mut failed=vec![]; log.write_batch(&puts,|i,r|if r.is_err(){failed.push(i)}); 
   while let Some(i)=failed.pop(){ waits+=1; while log.write(table,&keys[i],&val).is_err(){log.turn();} } ops+=64; 
   let s=t.elapsed().as_secs_f64(); if s-last.0>1.0 { println!("  {:.2} M/s",(ops-last.1) as f64/1e6/(s-last.0)); last=(s,ops);} }
 } else { 
  while t.elapsed().as_secs_f64()<secs { for _ in 0..1000 { let k=key(rng(&mut x)%n as u64); while log.write(table,&k,&val).is_err(){waits+=1; log.turn();} } ops+=1000; 
   let s=t.elapsed().as_secs_f64(); if s-last.0>1.0 { println!("  {:.2} M/s",(ops-last.1) as f64/1e6/(s-last.0)); last=(s,ops);} }
 }
 let e=t.elapsed().as_secs_f64(); println!("overwrite {:.2} M/s waits {waits}", ops as f64/e/1e6);
 println!("{:?}",log.usage());
 // reads
 let t=Instant::now(); let mut s=0usize; let m=3_000_000; for _ in 0..m { let k=key(rng(&mut x)%n as u64); s+=log.read(table,&k).unwrap().unwrap().value().len(); } println!("read {:.0} ns {s}",t.elapsed().as_nanos() as f64/m as f64);
 let t=Instant::now(); for _ in 0..m/64 { let mut keys=[[0u8;30];64]; for k in &mut keys{*k=key(rng(&mut x)%n as u64);} log.read_batch(keys.iter().map(|k|(table,&k[..])),|_,r|s+=r.unwrap().unwrap().value().len()); } println!("read batch {:.0} ns {s}",t.elapsed().as_nanos() as f64/m as f64);
 drop(cleaners);
}
